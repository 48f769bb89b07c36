"""`make run`: shows one real turn through the whole system, with this program as two editors.

A turn is one message of the user, and what this message changes in the session.

The program starts a daemon on the user's own socket, with the daemon's files in `.run` of the
checkout. If `CAPD_HOME` is set, the socket and the files are there. On a terminal the daemon keeps
running until Ctrl-C. A daemon that an earlier run left in the same folder is used, and not stopped.
"""

import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.mcp_host import HostError, McpHost
from capd_client.service.stopping import holder
from capd_protos.places import Places, places, socket_path

MESSAGE = "what changed in the last three commits of this repository?"
LINGER = "1"
FIRST, SECOND = "first-editor", "second-editor"
"""Names of the clients; their session keys differ in each run (`_session`)."""
PATIENCE = 120.0
"""Seconds for a step that may download a server or load the model for the first time."""

T = TypeVar("T")


class StepError(Exception):
    """A step did not have the expected result; the text says which."""


def main() -> int:
    """Show one turn through the whole system; return the exit code, 1 if a step failed."""
    env = _environment()
    log = Path(env["CAPD_HOME"]) / "daemon.log"
    try:
        with _daemon(env, log) as (process, control):
            _play(env, control)
            if process is not None and sys.stdin.isatty() and sys.stdout.isatty():
                _say("Serving. Connect an editor with the line above; Ctrl-C ends it.")
                process.wait()
    except (StepError, HostError, ControlError, DaemonDownError) as error:
        sys.stderr.write(f"capd: {error}\n")
        if log.exists():
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
            sys.stderr.write(f"The daemon's last lines ({log}):\n" + "\n".join(tail) + "\n")
        return 1
    except KeyboardInterrupt:
        _say("Stopped.")
    return 0


def _play(env: dict[str, str], control: Control) -> None:
    project = str(_project(Path(env["CAPD_HOME"])))
    first_key, second_key = _session(FIRST), _session(SECOND)
    keys = {first_key, second_key}
    _step(1, "An editor connects through `capd mcp`.")
    with (
        _editor(FIRST, first_key, env, project) as first,
        _editor(SECOND, second_key, env, project) as second,
    ):
        first.initialize(FIRST)
        _show(f"listed at first: {_names(first.tools())}")
        _model_ready(control)

        _step(2, f'Its user says: "{MESSAGE}"')
        turn = _wait("a decision", lambda: _decided(control, first_key), PATIENCE)
        top = ", ".join(f"{hit['name']} {hit['score']:.2f}" for hit in turn["top"][:3])
        _show(f"scores: {top}")
        if turn["outcome"] != "activate" or turn["problem"]:
            raise StepError(f"nothing was switched on: {turn['reason'] or turn['problem']}")
        _show(f"switched on: {turn['name']} in {turn['ms']:.0f} ms, its server's start included")
        first.wait_for("notifications/tools/list_changed")
        _show("the editor was told that its list of tools has changed")
        _show(f"listed now: {_names(first.tools())}")

        _step(3, "The model calls one of them.")
        result = first.call("git__git_log", {"repo_path": project, "max_count": 3})
        if result.get("isError"):
            raise StepError(f"git__git_log failed: {result}")
        for line in "\n".join(part.get("text", "") for part in result["content"]).splitlines():
            _show(line)

        _step(4, "A second editor switches the same capability on: still one process.")
        second.initialize(SECOND)
        answer = control.call("enable", {"session": second_key, "name": turn["name"]})
        _show(answer["text"])
        holders = [each for each in _servers(control) if first_key in each["leases"]]
        server = _only(holders, "server of the first editor")
        _show(f"server {server['name']}: pid {server['pid']}, held by {server['leases']}")
        if second_key not in server["leases"]:
            raise StepError(f"the server is held by {server['leases']}, not by both editors")

        _step(5, "capd status")
        sys.stdout.flush()
        subprocess.run([_command(), "status"], env=env, check=False)

    _step(
        6, f"Both editors leave; a server that nobody needs is ended after {LINGER} s (--linger)."
    )
    others = _wait("the server's end", lambda: _left(control, server, keys), PATIENCE)
    if others:
        _show(f"pid {server['pid']} goes on: others hold it, {', '.join(others)}")
    else:
        _wait("the process's end", lambda: not _alive(server["pid"]) or None, PATIENCE)
        _show(f"pid {server['pid']} is gone; servers running: {len(_running(control))}")
    _say("\nConnect your editor, for example Claude Code:")
    _say(f"    {_command()} install claude")


def _session(client: str) -> str:
    """Return a session key that no earlier run has used.

    An ended session is kept for a day with its active capabilities: under the same key there would
    be nothing left to switch on.
    """
    return f"{client}-{secrets.token_hex(4)}"


def _servers(control: Control) -> list[dict[str, Any]]:
    return [entry for entry in control.call("servers")["servers"] if entry["pid"]]


def _running(control: Control) -> list[str]:
    """Return the names of the servers that have a process, as the daemon reports."""
    return [entry["name"] for entry in _servers(control)]


def _left(control: Control, server: dict[str, Any], keys: set[str]) -> list[str] | None:
    """Return the other sessions that hold `server`; None while a session of this run holds it.

    `keys` are the sessions of this run. The list is empty once the server has ended. The result is
    None, too, while the server runs without a holder, because the daemon will end it soon.
    """
    found = [each for each in _servers(control) if each["pid"] == server["pid"]]
    holders = [holder for each in found for holder in each["leases"]]
    if keys & set(holders) or (found and not holders):
        return None
    return holders


def _environment() -> dict[str, str]:
    """Return the environment of this run's daemon: the user's socket, and a folder of its own."""
    env = dict(os.environ)
    if "CAPD_HOME" not in env:
        env["CAPD_SOCKET"] = socket_path(env, os.getuid())
        env["CAPD_HOME"] = str(Path.cwd() / ".run")
    env.setdefault("CAPD_LINGER", LINGER)
    Path(env["CAPD_HOME"]).mkdir(mode=0o700, parents=True, exist_ok=True)
    return env


@contextmanager
def _daemon(
    env: dict[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[bytes] | None, Control]]:
    where = places(env, os.getuid())
    socket = where.socket
    control = Control(socket)
    try:
        # A daemon that an aborted run left may still be starting or ending.
        _wait("the daemon that has this folder", lambda: _is_ready(control, where), PATIENCE)
        control.connect()
    except DaemonDownError:
        pass
    else:
        pid = control.daemon.get("pid")
        if pid == holder(where.state):
            _say(f"capd serves {socket} already (pid {pid}): it is used, and goes on.")
            _say("    `capd stop` ends it.")
            try:
                yield None, control
            finally:
                control.close()
            return
        raise StepError(
            f"a daemon (pid {pid}) serves {socket} already. Stop it with `capd stop`, or run this "
            "one beside it: CAPD_HOME=/some/folder make run"
        )
    started_at = time.monotonic()
    with log.open("wb") as output:
        # A session of its own: Ctrl-C is for this program, which then stops the daemon in order.
        process = subprocess.Popen(
            [_command(), "daemon", "run"], env=env, stderr=output, start_new_session=True
        )
    try:
        _wait("the daemon's socket", lambda: _connected(control, process), PATIENCE)
        _say(f"capd serves {socket} (pid {process.pid}, {time.monotonic() - started_at:.1f} s).")
        yield process, control
    finally:
        control.close()
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(control: Control, where: Places) -> bool | None:
    """Return True if the daemon of `where` answers, or if no daemon uses its state folder.

    Return None while a daemon starts or ends.
    """
    try:
        control.connect()
    except DaemonDownError:
        return None if holder(where.state) else True
    return True


def _connected(control: Control, process: subprocess.Popen[bytes]) -> bool | None:
    if process.poll() is not None:
        raise StepError(f"the daemon ended with code {process.returncode}")
    try:
        control.connect()
    except DaemonDownError:
        return None
    return True


@contextmanager
def _editor(client: str, session: str, env: dict[str, str], project: str) -> Iterator[McpHost]:
    own = {**env, "CAPD_SESSION": session, "CAPD_CLIENT": client}
    with McpHost([_command(), "mcp"], env=own, cwd=project) as host:
        yield host


def _model_ready(control: Control) -> None:
    started_at = time.monotonic()

    def look() -> dict[str, Any] | None:
        model = control.call("status")["embedder"]
        if model["state"] == "unusable":
            raise StepError(f"the embedding model cannot be used: {model['reason']}")
        return model if model["state"] == "ready" and model["pid"] else None

    model = _wait("the embedding model", look, PATIENCE)
    seconds = time.monotonic() - started_at
    _show(f"the model is ready after {seconds:.1f} s: {model['model']}, {model['quantisation']}")


def _decided(control: Control, key: str) -> dict[str, Any] | None:
    """Send the message in the session `key`; return its turn.

    Return None if the model was not ready in time.
    """
    turn: dict[str, Any] = control.call("turn", {"session": key, "text": MESSAGE})
    return None if turn["reason"] == "model_not_ready" else turn


def _project(home: Path) -> Path:
    """Return a git repository: the current folder if it is one, otherwise a small new one.

    A new one is made in the folder `home`.
    """
    here = Path.cwd()
    if (here / ".git").exists():
        return here
    example = home / "example"
    if not (example / ".git").exists():
        example.mkdir(parents=True, exist_ok=True)
        git = [
            "git",
            "-c",
            "user.name=capd",
            "-c",
            "user.email=capd@example.invalid",
            "-C",
            str(example),
        ]
        subprocess.run([*git, "init", "-q"], check=True)
        for text in ("a first line", "a second line", "a third line"):
            with (example / "notes.txt").open("a", encoding="utf-8") as notes:
                notes.write(text + "\n")
            subprocess.run([*git, "add", "notes.txt"], check=True)
            subprocess.run([*git, "commit", "-qm", f"notes: {text}"], check=True)
    return example


def _wait(what: str, look: Callable[[], T | None], patience: float) -> T:
    give_up_at = time.monotonic() + patience
    while time.monotonic() < give_up_at:
        found = look()
        if found is not None:
            return found
        time.sleep(0.1)
    raise StepError(f"waited {patience:g} s in vain for {what}")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _only(entries: list[dict[str, Any]], what: str) -> dict[str, Any]:
    if len(entries) != 1:
        raise StepError(f"there are {len(entries)} {what}s, not one: {entries}")
    return entries[0]


def _names(tools: list[dict[str, Any]]) -> str:
    return f"{len(tools)} ({', '.join(tool['name'] for tool in tools)})"


def _command() -> str:
    beside = Path(sys.executable).with_name("capd")
    found = str(beside) if beside.exists() else shutil.which("capd")
    if found is None:
        raise StepError("the command `capd` is not installed: run make run")
    return found


def _step(number: int, text: str) -> None:
    _say(f"\n[{number}] {text}")


def _show(text: str) -> None:
    _say(f"    {text}")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this program's purpose


if __name__ == "__main__":
    sys.exit(main())
