"""What all bridges of this machine do: open, serve, reopen after a cut, remove everything.

open the bridge ──> prepare ──> serve ──cut──> prepare ... as long as it takes
                          ^         │
                          └─daemon──┘──revoked, a signal, ended on the far side──> removed

`daemon` stands for a daemon that is back after a restart. The far side is the other host or the
container.
"""

import contextlib
import json
import os
import secrets
import select
import shlex
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from capd_client.bridge.bundle import bundle, far_side_program
from capd_client.bridge.far_side import MARK
from capd_client.bridge.holding import HeldBridge
from capd_client.control import DaemonDownError

RUN = (
    "import sys; n = int(sys.stdin.buffer.readline()); "
    'exec(compile(sys.stdin.buffer.read(n), "capd-bridge", "exec"))'
)
"""Reads a program from standard input and runs it, so that no process list shows the program."""
BEAT = 5.0
"""Seconds between two messages to the far side, which ends after a minute without one."""
FAREWELL = 5.0
"""Seconds for the far side to remove its files."""
MOST_SAID = 1 << 20
"""The most bytes of a far side's answer; a login shell may print lines of its own before it."""
_MOST_PATH = 1024
_STEERING = frozenset("%$:\\")
"""Characters with a special meaning for ssh in the path of a socket: they begin a variable, or
separate two paths."""
_FIRST_PAUSE = 0.2
_LAST_PAUSE = 2.0
_PREPARE_TIMEOUT = 30.0


class FarSideError(Exception):
    """The far side of a bridge cannot be used; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The far side's report on what was installed there."""

    folder: str
    python: str
    is_installed: bool

    @classmethod
    def of(cls, report: dict[str, Any], name: str, host: str) -> "Prepared":
        """Check and return `report`, the document that the far side of the bridge `name` sent.

        The folder in it must be plain text: in an argument, ssh would replace `${HOME}` or `%h` by
        values of this machine, and send the outcome to the other side. `host` names the far side in
        errors.

        Raises:
            FarSideError: the report is not valid.
        """
        folder, python = report.get("folder"), report.get("python")
        is_folder = (
            isinstance(folder, str)
            and len(folder) <= _MOST_PATH
            and folder.startswith("/")
            and folder.endswith(f"/.local/share/capd-bridge/{name}")
            and folder.isprintable()
            and not _STEERING.intersection(folder)
        )
        is_python = isinstance(python, str) and len(python) <= _MOST_PATH and python.isprintable()
        if not is_folder or not is_python:
            raise FarSideError(f"{host} names no folder of a bridge, so nothing was forwarded")
        return cls(str(folder), str(python), bool(report.get("installed")))


class FarBridge(ABC):
    """One bridge to one host or container."""

    kind: str
    """The kind of connection, as `capd status` shows it."""

    def __init__(
        self,
        socket: str,
        name: str,
        target: str,
        *,
        is_installed: bool = False,
        say: Callable[[str], None],
        wake: int,
    ) -> None:
        """Create the bridge; it is not open yet.

        `socket` is the path of the daemon's socket, and `name` the bridge's name. `target` names
        the host or container. `is_installed` says whether to add the shim to the
        configuration of Claude Code there. `say` shows a line to the person. `wake` is a descriptor
        that becomes readable when a signal asks this process to end.
        """
        self._socket = socket
        self._name = name
        self._target = target
        self._is_installed = is_installed
        self._say = say
        self._wake = wake
        self._has_been_up = False
        self._held: HeldBridge | None = None

    def run(self) -> None:
        """Keep the bridge open until a signal arrives.

        Raises:
            FarSideError: it could not be opened, or ended for another reason.
            ControlError, DaemonDownError: the daemon refused it, or is not running at the start.
        """
        pause = _FIRST_PAUSE
        try:
            while True:
                began_at = time.monotonic()
                try:
                    if self._attempt():
                        return
                except (DaemonDownError, FarSideError) as error:
                    if not self._has_been_up or isinstance(error, OverError):
                        raise
                    self._say(f"cut: {error}; the bridge is opened again")
                if time.monotonic() > began_at + _LAST_PAUSE * 5:
                    pause = _FIRST_PAUSE
                if self._is_asked_to_end(pause):
                    return
                pause = min(pause * 2, _LAST_PAUSE)
        finally:
            self._leave()

    def _attempt(self) -> bool:
        """Open the bridge if it is closed, and serve it until the connection is lost.

        Return whether a signal ended it.
        """
        if self._held is None:
            self._held = HeldBridge(self._socket, self._name, self.kind, self._target)
        generation = secrets.token_hex(8)
        return self._serve(self._held, self._prepare(self._held, generation), generation)

    def _prepare(self, held: HeldBridge, generation: str) -> Prepared:
        shim = bundle()
        order = {
            "do": "prepare",
            "kind": self.kind,
            "name": self._name,
            "credential": held.credential,
            "generation": generation,
            "install": self._is_installed,
            "size": len(shim),
        }
        # After the first time nobody may be there to type a password, so the time is limited.
        timeout = _PREPARE_TIMEOUT if self._has_been_up else None
        report = self._ordered(order, shim, timeout)
        return Prepared.of(report, self._name, self._target)

    @abstractmethod
    def _ordered(
        self, order: dict[str, Any], payload: bytes, timeout: float | None
    ) -> dict[str, Any]:
        """Send the far side the command `order`, followed by `payload`; return its report.

        `timeout` is in seconds.
        """

    @abstractmethod
    def _serve(self, held: HeldBridge, prepared: Prepared, generation: str) -> bool:
        """Serve the bridge until the connection is lost; return whether a signal ended it.

        `held` is the daemon's end, `prepared` the far side's report, and `generation` the text that
        identifies this connection there. When this returns, no process that it started is running.
        """

    def _leave(self) -> None:
        if self._held is not None:
            self._held.close()

    def _hear(self, held: HeldBridge) -> None:
        try:
            event = held.next_event()
        except DaemonDownError:
            held.close()
            self._held = None
            raise
        if event.get("method") == "bridge_ended":
            raise OverError(f"the bridge {self._name} was revoked")

    def _on_removed(self, report: dict[str, Any]) -> None:
        if report.get("why") == "stopped":
            raise OverError(f"it was ended on {self._target}")

    def _on_held(self, prepared: Prepared) -> None:
        if self._has_been_up:
            self._say("up again")
            return
        self._has_been_up = True
        for line in instructions(self._name, self._target, prepared):
            self._say(line)

    def _is_asked_to_end(self, within: float) -> bool:
        return bool(select.select([self._wake], [], [], within)[0])


class OverError(FarSideError):
    """Raised when the bridge has ended and must not be opened again."""


def instructions(name: str, host: str, prepared: Prepared) -> list[str]:
    """Return the lines that tell a person what to do on the far side, the host `host`.

    `name` is the bridge's name, and `prepared` says what was installed there.
    """
    shim = f"{prepared.folder}/capd.pyz"
    if prepared.is_installed:
        how = ["Claude Code there has it as the MCP server `capd`."]
    else:
        command = {"command": prepared.python, "args": [shim]}
        server = {"mcpServers": {"capd": command}}
        # Without `alwaysLoad` Claude Code asks its model before the tools are there.
        claude = json.dumps({"type": "stdio", **command, "alwaysLoad": True})
        how = [
            f"Editors there start the MCP server: {prepared.python} {shim}",
            f"  claude mcp add-json capd {shlex.quote(claude)}",
            f"  codex mcp add capd -- {prepared.python} {shim}",
            f"  {json.dumps(server)}",
        ]
    return [f"The bridge {name} to {host} is up. Ctrl-C ends it.", *how]


def parse_report(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line from the far side; None if another program wrote the line."""
    text = line.decode("utf-8", "replace")
    if not text.startswith(MARK):
        return None
    try:
        report = json.loads(text[len(MARK) :])
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) else None


def send_order(
    command: Sequence[str],
    target: str,
    order: dict[str, Any],
    payload: bytes = b"",
    timeout: float | None = None,
) -> dict[str, Any]:
    """Send the far side the command `order`, followed by `payload`; return its answer.

    `command` is the local program that connects to the far side. `target` names the far side in
    errors. `timeout` is in seconds; None waits without a limit.

    Raises:
        FarSideError: the far side did not carry the command out.
    """
    program = far_side_program()
    data = b"%d\n%s%s\n%s" % (len(program), program, json.dumps(order).encode(), payload)
    try:
        process = subprocess.Popen(list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise FarSideError(f"there is no program `{command[0]}` here") from None
    answer, returncode = _answer(process, target, data, timeout)
    reports = [each for each in map(parse_report, answer.split(b"\n")) if each is not None]
    if not reports:
        raise FarSideError(
            f"{target} cannot be prepared ({command[0]} ended with {returncode}): it needs a shell,"
            " and Python 3.8 or newer with the name python3"
        )
    if "failed" in reports[-1]:
        raise FarSideError(f"{target}: {reports[-1]['failed']}")
    return reports[-1]


def _answer(
    process: "subprocess.Popen[bytes]", host: str, data: bytes, timeout: float | None
) -> tuple[bytes, int]:
    """Send `data` to the process; return what the far side prints, and the process's exit code.

    The process has ended when this returns. `host` names the far side in errors. `timeout` is in
    seconds; None waits without a limit.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    # The program is larger than a pipe's buffer, and a far side may print before reading it.
    writer = threading.Thread(target=_write, args=(process.stdin, data), daemon=True)
    writer.start()
    until = None if timeout is None else time.monotonic() + timeout
    answer = bytearray()
    try:
        while part := next_chunk(process.stdout, until):
            answer += part
            if len(answer) > MOST_SAID:
                raise FarSideError(too_much(host))
        if until is not None and time.monotonic() >= until:
            raise FarSideError(f"{host} does not answer")
        return bytes(answer), process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise FarSideError(f"{host} does not answer") from None
    finally:
        process.kill()
        process.wait()
        writer.join()
        process.stdout.close()


def _write(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(OSError), pipe:
        pipe.write(data)


def next_chunk(pipe: IO[bytes], until: float | None) -> bytes:
    """Return the next bytes of a pipe; empty at its end, or when the time `until` has come."""
    left = None if until is None else max(0.0, until - time.monotonic())
    if not select.select([pipe], [], [], left)[0]:
        return b""
    return os.read(pipe.fileno(), 65536)


def too_much(host: str) -> str:
    """Return the error text for a far side that sends more than the limit."""
    return f"{host} says more than {MOST_SAID >> 20} MiB where one line was asked for"
