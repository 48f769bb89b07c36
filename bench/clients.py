"""What a real client's model gets in its first request: `python bench/clients.py [CLIENT]...`.

Each client runs in a home folder of its own, into which `capd install` has installed capd, with the
default time limit for hooks. Its model is a script on loopback (tests/editors/searching_llm.py).
The script calls the right tool if the tool is listed, or else if it has got the tool's call card;
otherwise it searches once. The benchmark needs npm, uvx, and the folder of fixtures that
`make test-clients` needs (`CAPD_SHARED`).

A cell of the table says how many requests the model got until it had the commits that the user
asked for, and how the first request offered the right tool. At least two requests are needed: in
answer to the first, the model calls the tool, and the second has the result. `--write FILE` puts
the rows into the table in FILE. Rows of other clients stay, and so do columns that `--state` leaves
out.
"""

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

import pytest  # noqa: E402 - its path

from capd_client.control import ControlError, DaemonDownError  # noqa: E402 - behind the path
from capd_client.shim.login_environment import NETWORK_VARIABLES  # noqa: E402 - as above
from editors import agents, lab, test_installed  # noqa: E402 - its path
from editors.lab import (  # noqa: E402 - its path
    MESSAGE,
    SUBJECTS,
    TOOL,
    Lab,
    Model,
    Terminal,
    following,
)
from editors.searching_llm import results  # noqa: E402 - its path
from whole_daemon import Home, wait_for  # noqa: E402 - its path

Json = dict[str, Any]

PATIENCE = 120.0
NETWORK = [name.decode() for name in NETWORK_VARIABLES]
STARTER = Path(__file__).parents[1] / "taps/starter"
BEGIN, END = "<!-- bench/clients.py: begin -->", "<!-- bench/clients.py: end -->"


@dataclass(frozen=True)
class Client:
    """A real client: how to set it up, and how to send it a message."""

    title: str
    install: tuple[str, ...]
    """The arguments of `capd install`."""
    add: Callable[[Lab], list[str]]
    """Sets it up; returns its command, to which the message is added."""
    in_terminal: bool = False
    """Whether it runs in a terminal, into which the message is typed."""


def _claude(made: Lab) -> list[str]:
    made.add_claude(lab.installed(lab.CLAUDE, script="install.cjs") / "bin" / "claude.exe")
    return ["claude", "-p", "--allowedTools", "mcp__capd", "--"]


def _claude_terminal(made: Lab) -> list[str]:
    _claude(made)
    lab.settle_claude(made)
    return ["claude", "--allowedTools", "mcp__capd"]


def _opencode(made: Lab) -> list[str]:
    found = sorted(lab.installed(lab.OPENCODE).parent.glob("opencode-*/bin/opencode"))
    made.add_opencode(next((path for path in found if "baseline" in str(path)), found[0]))
    return ["opencode", "run"]


def _codex(made: Lab, model: str) -> list[str]:
    command = agents.CODEX.give(made)
    # No setting approves tools: those that are marked read-only run, as `capd install` says.
    at = next(at for at, each in enumerate(command) if "approval_mode" in each)
    del command[at - 1 : at + 1]
    return [*command, "-m", model]


CLIENTS = {
    "claude": Client("Claude Code 2.1.330, `-p`", ("claude",), _claude),
    "claude-tui": Client("Claude Code 2.1.330, terminal", ("claude",), _claude_terminal, True),
    "codex": Client(
        "Codex 0.169.0, a model that lists",
        ("codex", "--trust-hooks"),
        lambda made: _codex(made, "gpt-4.1"),
    ),
    "codex-search": Client(
        "Codex 0.169.0, a model that searches",
        ("codex", "--trust-hooks"),
        lambda made: _codex(made, "gpt-5.5"),
    ),
    "gemini": Client("Gemini CLI 0.61.0", ("gemini",), agents.GEMINI.give),
    "copilot": Client("Copilot CLI 1.0.102", ("copilot",), agents.COPILOT.give),
    "opencode": Client("opencode 1.18.33, `run`", ("opencode",), _opencode),
    "qwen": Client("Qwen Code 0.24.4", ("qwen",), agents.QWEN.give),
    "cline": Client("Cline CLI 3.0.65", ("cline",), test_installed.add_cline),
    "continue": Client("Continue 1.5.47", ("continue",), test_installed.add_continue),
}


class Stage:
    """One client in one home folder, and the messages that it gets."""

    def __init__(self, made: Lab, client: Client) -> None:
        self.lab = made
        self.client = client
        self.command = client.add(made)
        # The settings are in a file, because some clients pass on only a few variables.
        self.configure()
        made.home.env |= {"HOME": str(made.user)}
        # Variables that this machine needs to reach a network are in the profile of the login
        # shell, where the daemon finds them: some clients do not pass them on.
        needed = [name for name in NETWORK if name in os.environ]
        profile = "".join(f"export {name}={shlex.quote(os.environ[name])}\n" for name in needed)
        (made.user / ".profile").write_text(profile)

    def configure(self, more: str = "") -> None:
        """Write the configuration of the daemon that starts next."""
        folder = self.lab.home.folder / "config"
        folder.mkdir(exist_ok=True)
        (folder / "config.toml").write_text(f"[servers]\nlinger = 0.2\n{more}")

    def restart(self, more: str = "") -> None:
        """Start the daemon anew, and wait for its model."""
        self.stop()
        self.configure(more)
        # Vectors of an earlier start: a first start that was stopped early lacks some of them.
        cache = self.lab.home.folder / "cache"
        cache.mkdir(mode=0o700, exist_ok=True)
        for file in (lab.CACHE / "vectors").glob("*.bin"):
            shutil.copy2(file, cache)
        self.lab.home.start()
        with self.lab.home.shim("warming"):
            wait_for(self.lab.is_ready, PATIENCE)
        self.settle()

    def stop(self) -> None:
        """Stop the daemon, whichever process started it."""
        with contextlib.suppress(DaemonDownError, ControlError):
            self.lab.home.ask("stop")
        wait_for(lambda: not (self.lab.home.folder / "run" / "capd.sock").exists())
        for process in self.lab.home.processes:
            process.wait(PATIENCE)

    def settle(self) -> None:
        """Wait until the last client and its servers have ended."""
        home = self.lab.home
        wait_for(lambda: not home.ask("sessions")["sessions"], PATIENCE)
        wait_for(lambda: not home.servers(), PATIENCE)

    def say(self) -> str:
        """Send the message to the client; return the table cell."""
        self.lab.model.go_on(following(self.lab.project))
        problem = ""
        try:
            if self.client.in_terminal:
                self._type()
            else:
                self.lab.run(*self.command, MESSAGE)
        except subprocess.TimeoutExpired:
            problem = f"not over after {PATIENCE:g} s"
        except AssertionError as error:
            problem = (str(error).strip().splitlines() or ["it failed"])[0][:80]
        return cell(self.lab.model, problem)

    def _type(self) -> None:
        with contextlib.closing(Terminal(self.lab, *self.command)) as terminal:
            terminal.say(MESSAGE)
            try:
                wait_for(lambda: "three commits\n" in answers(self.lab.model), PATIENCE)
            except AssertionError:
                print(terminal.screen(), file=sys.stderr)
                raise


def rows(model: Model) -> list[Json]:
    """Return the recorded requests that offered tools."""
    file = model.folder / "requests.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [row for row in map(json.loads, lines) if row["ntools"]]


def answers(model: Model) -> str:
    """Return the texts that the model has answered with, a line each."""
    file = model.folder / "steps.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return "".join(f"{json.loads(line)['text']}\n" for line in lines)


def cell(model: Model, problem: str) -> str:
    """Return the table cell for a client's turn."""
    asked = rows(model)
    if not asked:
        return f"no request ({problem})" if problem else "no request"
    body = json.loads((model.folder / f"body-{asked[0]['n']:03d}.json").read_text())
    said = json.dumps({key: value for key, value in body.items() if key != "tools"})
    shown = set(asked[0]["tool_names"]) - set(asked[0]["deferred"])
    if any(re.search(rf"(^|[_:-]){TOOL}$", name or "") for name in shown):
        way = "listed"
    elif f"- {TOOL}(" in said:
        way = "card"
    elif any("capd" in (name or "") for name in shown):
        way = "own tools alone"
    else:
        way = "nothing of capd"
    last = json.loads((model.folder / f"body-{asked[-1]['n']:03d}.json").read_text())
    answered = json.dumps(list(results(last)))
    if not all(subject in answered for subject in SUBJECTS):
        print(f"results: {answered[:6000]}\nanswers: {answers(model)}", file=sys.stderr)
        return f"**not reached** in {len(asked)} ({way}{'; ' + problem if problem else ''})"
    return f"{len(asked)}, {way}"


State = Callable[[Stage], AbstractContextManager[Any]]


def first_ever(stage: Stage) -> AbstractContextManager[Any]:
    print(stage.lab.install(*stage.client.install, is_checked=True), file=sys.stderr)
    return nullcontext()


def cold(stage: Stage) -> AbstractContextManager[Any]:
    stage.stop()
    return nullcontext()


def warm(stage: Stage) -> AbstractContextManager[Any]:
    stage.restart()
    return nullcontext()


@contextlib.contextmanager
def running(stage: Stage) -> Iterator[None]:
    stage.settle()
    with stage.lab.git_at_hand():
        yield
    stage.settle()


def idle(stage: Stage) -> AbstractContextManager[Any]:
    stage.restart("[embedder]\nidle = 1\n")
    wait_for(lambda: not stage.lab.home.ask("status")["embedder"]["pid"], PATIENCE)
    return nullcontext()


def _own_tap(stage: Stage, *names: str) -> None:
    """Replace the starter tap by one with these of its capabilities."""
    tap = stage.lab.home.folder / "tap"
    for name in names:
        shutil.copytree(STARTER / "capabilities" / name, tap / "capabilities" / name)
    taps = stage.lab.home.folder / "config/taps.toml"
    taps.write_text(f'starter = false\n[[taps]]\nname = "mine"\npath = "{tap}"\n')


def small(stage: Stage) -> AbstractContextManager[Any]:
    _own_tap(stage, "git")
    stage.restart()
    return nullcontext()


def partly_known(stage: Stage) -> AbstractContextManager[Any]:
    # A server that has never run, so that its tools are not known.
    stage.lab.home.plain("boats")
    taps = stage.lab.home.folder / "config/taps.toml"
    taps.write_text(f"starter = false\n{taps.read_text()}")
    stage.restart()
    return nullcontext()


STATES: dict[str, State] = {
    "first ever": first_ever,
    "cold daemon": cold,
    "warm": warm,
    "server running": running,
    "model idle": idle,
    "7 tools in all": small,
    "a server unknown": partly_known,
}


@contextlib.contextmanager
def made_lab() -> Iterator[Lab]:
    shared = Path(os.environ.get("CAPD_SHARED") or Path(__file__).parents[2] / "shared")
    program = shared / "fixtures" / "fake_llm.py"
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    home, place = Home(folder), Path(tempfile.mkdtemp(prefix="capd-clients"))
    model = Model(program, place / "model", [{"text": "hello"}])
    try:
        yield Lab(home, model, place)
    finally:
        model.close()
        with contextlib.suppress(DaemonDownError, ControlError):
            home.ask("stop")
        home.close()
        test_installed.end_processes_of(place / "user")
        if "CAPD_KEEP" not in os.environ:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(place, ignore_errors=True)


def row_of(client: Client, states: list[str], on_cells: Callable[[list[str]], None]) -> list[str]:
    """Return the cells of one client; after each cell, `on_cells` gets those so far."""
    cells: list[str] = []
    with made_lab() as made:
        try:
            stage = Stage(made, client)
        except pytest.skip.Exception as why:
            return [f"not tried: {why}"] * len(STATES)
        for name, state in STATES.items():
            if not states:
                cells.append("-")
                continue
            began_at = time.monotonic()
            try:
                with state(stage):
                    said = stage.say() if name in states else "-"
            except AssertionError as error:
                said = f"not tried: {(str(error).splitlines() or ['?'])[0][:80]}"
            cells.append(said)
            on_cells([*cells, *["-"] * (len(STATES) - len(cells))])
            if not set(states) - set(list(STATES)[: len(cells)]):
                # No further state is wanted.
                states = []
            print(
                f"{client.title} | {name}: {said} ({time.monotonic() - began_at:.1f} s)",
                file=sys.stderr,
                flush=True,
            )
    return cells


def line(client: Client, cells: list[str]) -> str:
    return f"| {' | '.join([client.title, *cells])} |"


def with_new_cells(old: str, new: str) -> str:
    """Return the row `new`, with the cells of `old` where it has a "-"."""
    cells = zip(old.split(" | "), new.removesuffix(" |").split(" | "), strict=True)
    taken = [before.removesuffix(" |") if now == "-" else now for before, now in cells]
    return f"{' | '.join(taken)} |"


def write(page: Path, lines: dict[str, str]) -> None:
    """Put the rows into the table of `page`.

    Other rows stay, and so does a cell whose new value is "-".
    """
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    old = [each for each in table.splitlines() if each.startswith("| ")]
    titles = {each.split(" | ")[0].removeprefix("| "): each for each in old}
    for title, new in lines.items():
        titles[title] = with_new_cells(titles.get(title, new), new)
    head = f"| client | {' | '.join(STATES)} |\n|{'---|' * (len(STATES) + 1)}\n"
    order = [each.title for each in CLIENTS.values() if each.title in titles]
    rows_now = "".join(f"{titles[title]}\n" for title in order)
    page.write_text(f"{before}{BEGIN}\n\n{head}{rows_now}\n{END}{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("clients", nargs="*", help=f"of {', '.join(CLIENTS)}; all without one")
    parser.add_argument("--state", action="append", help="only this column; may be repeated")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page with the table")
    given = parser.parse_args()
    for name in given.clients or CLIENTS:
        client = CLIENTS[name]

        def on_cells(cells: list[str], client: Client = client) -> None:
            # Written as soon as each cell is known: a row takes minutes.
            if given.write:
                write(given.write, {client.title: line(client, cells)})

        print(line(client, row_of(client, given.state or list(STATES), on_cells)), flush=True)


if __name__ == "__main__":
    main()
