"""Type every command with good and with bad input, and show what came: a table on stdout.

    python tests/whole/typed_commands.py [--columns 60] [--columns 120] [--json]

Each is typed on a terminal of each width, and into a pipe. A daemon of its own runs meanwhile, in a
folder of its own that is also the home of the user who types. Nothing is installed on this machine:
what would start or end a service is typed with `--help`, and with bad input.

One process imports the commands and forks for each line typed, so that the whole takes seconds.
"""

import argparse
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

import click  # noqa: E402

from capd_client import commands, entry  # noqa: E402
from capd_client.columns import cell_width  # noqa: E402
from whole_daemon import Home, home_of_its_own, wait_for  # noqa: E402

FINE, FAILED, USAGE, DEGRADED = 0, 1, 2, 4
PATIENCE = 240.0
NEEDS_THE_MODEL = {"discover", "index", "search", "turn"}
"""They wait until it is loaded, which takes minutes on a machine that has much to do."""
BEFORE = {
    "tool reset": "tool edit alpha:echo --title Echo",
    "remove": "add notes --trigger 'look into my notes' -- true",
    "uninstall": "install codex",
}
"""What is typed first, where a good input rests on it."""
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]")

GOOD: dict[str, list[str]] = {
    "add": ["notes --trigger 'look into my notes' -- true"],
    "call": ["""alpha__echo '{"text": "x"}'"""],
    "caps": ["", "--json"],
    "check": ["", "--json"],
    "completion": ["bash"],
    "config path": [""],
    "config schema": [""],
    "config show": ["", "--json"],
    "disable": ["alpha"],
    "discover": ["'use alpha now'"],
    "doctor": [""],
    "enable": ["alpha"],
    "help": ["", "tap add"],
    "import": ["--dry-run"],
    "index": ["--known"],
    "install": ["", "codex --dry-run", "codex"],
    "learn": [""],
    "memory list": [""],
    "metrics": [""],
    "reload": [""],
    "remove": ["notes"],
    "routing": ["on"],
    "search": ["echo", "echo --json"],
    "secret list": [""],
    "servers": [""],
    "sessions": [""],
    "status": ["", "--json", "--tokens", "--line"],
    "tap list": [""],
    "tool edit": ["alpha:echo --title Echo"],
    "tool list": ["", "--json"],
    "tool reset": ["alpha:echo"],
    "tool show": ["alpha:echo", "alpha__echo --json"],
    "tools": [""],
    "turn": ["'thanks a lot'"],
    "trust definitions": [""],
    "trust project": ["--list"],
    "uninstall": ["codex"],
    "version": [""],
    "why": ["", "-n 2"],
}
"""What works here, in the order of the commands of a day; a command without has `--help`."""

BAD: dict[str, list[tuple[str, int]]] = {
    "add": [("", USAGE), ("'a b' -- true", FAILED), ("x", FAILED)],
    # As a shell says it of a program that is not there.
    "acp": [("no-such-agent", 127)],
    "call": [("", USAGE), ("no_such_tool", FAILED), ("alpha__echo '{'", USAGE)],
    "check": [("/no/such/folder", FAILED)],
    "completion": [("no-such-shell", USAGE)],
    "daemon logs": [("-n 2", FAILED)],
    # What is not on is off already.
    "disable": [("nothing", FAILED)],
    "discover": [("", USAGE)],
    "enable": [("", USAGE), ("no-such-capability", FAILED)],
    "help": [("no-such-command", USAGE)],
    "import": [("no-such-client", USAGE)],
    "install": [("no-such-editor", USAGE)],
    "logs": [("-n 2", FAILED)],
    "login": [("no-such-server", FAILED)],
    "memory edit": [("no-such-memory", FAILED)],
    "memory forget": [("no-such-memory", FAILED)],
    "plugin": [("no-such-editor", USAGE)],
    "remove": [("no-such-server", FAILED)],
    "routing": [("sideways", USAGE)],
    "run": [("/no/such/file.py", USAGE)],
    "search": [("", USAGE)],
    "secret set": [("", USAGE), ("'A B'", FAILED)],
    "secret remove": [("NOT_THERE", FAILED)],
    "setup": [("no-such-editor", USAGE)],
    "tap add": [("", USAGE), ("/no/such/tap", FAILED)],
    "tap build": [("/no/such/tap", USAGE)],
    "tap export": [("", USAGE), (".", FAILED)],
    "tap remove": [("no-such-tap", FAILED)],
    "tap update": [("no-such-tap", FAILED)],
    "tool edit": [("", USAGE), ("alpha:echo", USAGE), ("alpha:gone --name x", FAILED)],
    "tool reset": [("alpha:gone", FAILED), ("alpha:shout", FAILED)],
    "tool show": [("", USAGE), ("alpha:gone", FAILED)],
    "trust definitions": [("no-such-server", FAILED)],
    "trust project": [("/no/such/folder", FAILED)],
    "turn": [("", USAGE), ("--session none 'thanks'", FAILED)],
    "uninstall": [("no-such-editor", USAGE)],
}
"""What does not work, and with what it ends; every command has an unknown option besides."""


@dataclass(frozen=True, slots=True)
class Typed:
    """One command as typed, with its output and exit code."""

    words: str
    columns: int
    """Of the terminal; 0 is a pipe."""
    expected: int | None
    """The exit code; `None` where it depends on the machine."""
    exit_code: int
    said: str


def paths(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the path of each command of the tree: `tap add`."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from paths(found, (*path, name))
    else:
        yield " ".join(path)


def every_path() -> list[str]:
    """Return the commands that a person types."""
    # `mcp` and `hook` speak to programs; `eval` has options of its own.
    return [path for path in paths(commands.cli) if path not in {"mcp", "hook", "eval"}]


def inputs_of(path: str) -> Iterator[tuple[str, int | None]]:
    """Yield the arguments to type for a command, each with the expected exit code."""
    if path in BEFORE:
        yield BEFORE[path], None
    for words in GOOD.get(path, ["--help"]):
        # Of the machine, and of the commands before.
        is_open = path in {"doctor", "check", "metrics", "status", "trust project", "add"}
        yield f"{path} {words}".strip(), None if is_open else FINE
    for words, code in BAD.get(path, []):
        yield f"{path} {words}".strip(), code
    if path not in {"acp", "daemon run"}:
        # These two hand all options over to another program.
        yield f"{path} --no-such-option", USAGE


def inputs() -> Iterator[tuple[str, int | None]]:
    """Yield everything that is typed."""
    for path in every_path():
        yield from inputs_of(path)
    yield "no-such-command", USAGE
    yield "statsu", USAGE


def type_all(home: Home, columns: list[int]) -> Iterator[Typed]:
    """Type every command on terminals of these widths; 0 is a pipe."""
    environment, project = surroundings(home)
    for width in columns:
        for words, expected in inputs():
            code, said = _typed(words, width, environment, project)
            yield Typed(words, width, expected, code, said)


def surroundings(home: Home) -> tuple[dict[str, str], Path]:
    """Return the environment in which is typed, and the folder."""
    project = home.folder / "project"
    project.mkdir(exist_ok=True)
    return {**home.env, "HOME": str(home.folder), "TERM": "xterm-256color"}, project


def serve() -> None:
    """Run the commands that standard input names, as JSON lines, and answer likewise."""
    for line in sys.stdin:
        asked = json.loads(line)
        code, said = _typed(asked["words"], asked["columns"], asked["env"], Path(asked["cwd"]))
        print(json.dumps({"exit_code": code, "said": said}), flush=True)


def _typed(words: str, columns: int, environment: dict[str, str], cwd: Path) -> tuple[int, str]:
    reads, writes = pty.openpty() if columns else os.pipe()
    if columns:
        fcntl.ioctl(writes, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = os.fork()
    if child == 0:
        _become(words, writes, environment, cwd, is_terminal=bool(columns))
    os.close(writes)
    if columns:
        # Whoever is asked something gets a no, and then the end of what is typed.
        os.write(reads, b"n\n\x04\x04")
    said = _read_all(reads, child)
    os.close(reads)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said


def _read_all(reads: int, child: int) -> str:
    give_up_at = time.monotonic() + PATIENCE
    said = b""
    while True:
        ready, _, _ = select.select([reads], [], [], max(0.0, give_up_at - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            said += b"\n(it did not end)"
            break
        try:
            chunk = os.read(reads, 65536)
        except OSError:
            # How Linux says that the other side of a terminal is closed.
            break
        if not chunk:
            break
        said += chunk
    return said.decode(errors="replace").replace("\r\n", "\n")


def _become(
    words: str, writes: int, environment: dict[str, str], cwd: Path, *, is_terminal: bool
) -> None:
    """Replace this process by `capd WORDS`."""
    import shlex

    code = 99
    try:
        os.setsid()
        if is_terminal:
            fcntl.ioctl(writes, termios.TIOCSCTTY, 0)
        reads = writes if is_terminal else os.open(os.devnull, os.O_RDONLY)
        for number, fd in enumerate((reads, writes, writes)):
            os.dup2(fd, number)
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(cwd)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, mode, buffering=1, closefd=False)  # noqa: SIM115
            for number, mode in enumerate(("r", "w", "w"))
        )
        sys.argv = ["capd", *shlex.split(words)]
        try:
            code = entry.main()
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - what is shown is what is tested
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def plain(said: str) -> list[str]:
    """Return the lines that stay on the screen, without colours."""
    # A line that a carriage return wrote over is gone.
    lines = (_ESCAPES.sub("", line).rpartition("\r")[2] for line in said.split("\n"))
    return [line.rstrip() for line in lines]


def too_long(lines: list[str], columns: int) -> list[str]:
    """Return the lines that do not fit; what is copied runs over rather than break."""
    return [
        line
        for line in lines
        if cell_width(line) > columns
        # A path or an address; an example of the help.
        and not any("/" in word for word in line.split())
        and not line.startswith("    capd ")
    ]


def main() -> int:
    """Type everything, and print the table."""
    if sys.argv[1:] == ["--serve"]:
        serve()
        return 0
    options = argparse.ArgumentParser(description="Type every command.")
    options.add_argument("--columns", type=int, action="append", help="0 is a pipe")
    options.add_argument("--json", action="store_true", help="one document a line")
    chosen = options.parse_args()
    with home_of_its_own() as home:
        home.plain("alpha")
        home.start()
        home.ask("enable", session=_session(home), name="alpha")
        for each in type_all(home, chosen.columns or [60, 120, 0]):
            if chosen.json:
                print(json.dumps(asdict(each)), flush=True)
                continue
            where = f"{each.columns} columns" if each.columns else "a pipe"
            expected = "any" if each.expected is None else each.expected
            mark = "" if each.expected in {None, each.exit_code} else "   <<< UNEXPECTED"
            if each.columns and too_long(plain(each.said), each.columns):
                mark += "   <<< WIDE"
            print(f"$ capd {each.words}   [{where}: {each.exit_code}, expected {expected}]{mark}")
            for line in plain(each.said)[:30]:
                print(f"    {line}")
    return 0


def _session(home: Home) -> str:
    """Open a session as an editor does, for the commands that are about one."""
    host = home.shim("editor")
    _open.append(host)
    wait_for(lambda: home.ask("sessions")["sessions"])
    return "editor"


_open: list[object] = []

if __name__ == "__main__":
    sys.exit(main())
