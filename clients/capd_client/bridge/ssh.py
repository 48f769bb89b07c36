"""A bridge over OpenSSH: the daemon's bridge socket, forwarded to a socket on another host.

    open the bridge ──> prepare (ssh) ──> hold (ssh -R) ──cut──> prepare ... as long as it takes
                              ^                │
                              └─daemon back────┘──revoked, a signal, ended over there──> removed

The far side needs sshd and Python 3.8. It gets one file and the bridge's credential, over the
standard input of ssh. `hold` removes both when its input ends, so this process may be killed.

The far side is not trusted: what it says has a bound, and the folder that it names is checked
before ssh gets it.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from capd_client.bridge.bundle import bundle, far_side_program
from capd_client.bridge.far_side import MARK
from capd_client.bridge.holding import HeldBridge
from capd_client.control import DaemonDownError

_RUN = (
    "exec python3 -c 'import sys; n = int(sys.stdin.buffer.readline()); "
    'exec(compile(sys.stdin.buffer.read(n), "capd-bridge", "exec"))\''
)
"""Reads a program from standard input and runs it. Nothing of it is in the list of processes."""
_ALWAYS = (
    *("-T", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "PermitLocalCommand=no"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "RequestTTY=no"),
)
_HELD = (
    *("-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindUnlink=yes"),
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2", "-o", "ConnectTimeout=5"),
)
_BEAT = 5.0
"""Seconds between two words to the far side, which takes a minute of silence for the end."""
_FIRST_PAUSE = 0.2
_LAST_PAUSE = 2.0
_FAREWELL = 5.0
"""Seconds for the far side to remove what is there."""
_PREPARE_TIMEOUT = 30.0
MOST_SAID = 1 << 20
"""Bytes of a far side's answer; a login shell may print lines of its own before it."""
_MOST_PATH = 1024
_STEERING = frozenset("%$:\\")
"""Characters by which ssh puts variables into the path of a socket, and tells paths apart."""


class FarSideError(Exception):
    """The far side cannot be used; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was installed on the far side."""

    folder: str
    python: str
    is_installed: bool

    @classmethod
    def of(cls, said: dict[str, Any], name: str, host: str) -> "Prepared":
        """Return what a far side says of the bridge `name`; raises FarSideError.

        Its folder becomes a part of an argument of ssh, which replaces `${HOME}` or `%h` there by
        values of this machine, and sends the outcome to the other side.
        """
        folder, python = said.get("folder"), said.get("python")
        is_folder = (
            isinstance(folder, str)
            and len(folder) <= _MOST_PATH
            and folder.startswith("/")
            and folder.endswith(f"/.local/share/capd-bridge/{name}")
            and folder.isprintable()
            and not _STEERING.intersection(folder)
        )
        if not is_folder or not isinstance(python, str) or len(python) > _MOST_PATH:
            raise FarSideError(f"{host} names no folder of a bridge, so nothing was forwarded")
        return cls(str(folder), python, bool(said.get("installed")))


class SshBridge:
    """One bridge to one host."""

    def __init__(
        self,
        socket: str,
        name: str,
        host: str,
        *,
        options: Sequence[str] = (),
        is_installed: bool = False,
        say: Callable[[str], None],
        wake: int,
    ) -> None:
        """Create it. `options` are ssh's own; `wake` becomes readable when a signal arrives."""
        self._socket = socket
        self._name = name
        self._host = host
        self._ssh = ["ssh", *options, *_ALWAYS]
        self._is_installed = is_installed
        self._say = say
        self._wake = wake
        self._has_been_up = False
        self._held: HeldBridge | None = None
        self._process: subprocess.Popen[bytes] | None = None

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
                    if not self._has_been_up or isinstance(error, _OverError):
                        raise
                    self._say(f"cut: {error}; it is tried again")
                if time.monotonic() > began_at + _LAST_PAUSE * 5:
                    pause = _FIRST_PAUSE
                if self._is_asked_to_end(pause):
                    return
                pause = min(pause * 2, _LAST_PAUSE)
        finally:
            self._leave()

    def _attempt(self) -> bool:
        """Open what is not open, and serve until it is cut; return whether a signal came."""
        if self._held is None:
            self._held = HeldBridge(self._socket, self._name, "ssh", self._host)
        generation = secrets.token_hex(8)
        prepared = self._prepare(self._held, generation)
        folder = shlex.quote(prepared.folder)
        self._process = subprocess.Popen(
            [
                *self._ssh,
                *_HELD,
                *("-R", f"{prepared.folder}/socket:{self._held.socket}", "--", self._host),
                f"exec python3 {folder}/capd.pyz hold {generation}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            return self._serve(self._process, self._held, prepared)
        finally:
            self._end_process()

    def _prepare(self, held: HeldBridge, generation: str) -> Prepared:
        shim = bundle()
        order = {
            "do": "prepare",
            "name": self._name,
            "credential": held.credential,
            "generation": generation,
            "install": self._is_installed,
            "size": len(shim),
        }
        # Later nobody is there to be asked for a password for long.
        timeout = _PREPARE_TIMEOUT if self._has_been_up else None
        said = ordered([*self._ssh, "-o", "ConnectTimeout=5"], self._host, order, shim, timeout)
        return Prepared.of(said, self._name, self._host)

    def _serve(
        self, process: "subprocess.Popen[bytes]", held: HeldBridge, prepared: Prepared
    ) -> bool:
        assert process.stdin is not None
        assert process.stdout is not None
        out, buffer, beat_at = process.stdout.fileno(), b"", 0.0
        is_held = False
        while True:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + _BEAT
                self._tell(b"beat\n")
            ready, _, _ = select.select([out, held.fileno(), self._wake], [], [], _BEAT)
            if self._wake in ready:
                return True
            if held.fileno() in ready:
                self._hear(held)
            if out in ready:
                chunk = os.read(out, 65536)
                if not chunk:
                    raise FarSideError(f"ssh {self._host} ended ({process.wait()})")
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                if len(buffer) > MOST_SAID:
                    raise _OverError(_too_much(self._host))
                for each in filter(None, map(told, lines)):
                    if each.get("removed"):
                        self._on_removed(each)
                    elif each.get("held") and not is_held:
                        is_held = True
                        self._on_held(prepared)

    def _hear(self, held: HeldBridge) -> None:
        try:
            heard = held.hear()
        except DaemonDownError:
            held.close()
            self._held = None
            raise
        if heard.get("method") == "bridge_ended":
            raise _OverError(f"the bridge {self._name} was revoked")

    def _on_removed(self, said: dict[str, Any]) -> None:
        if said.get("why") == "stopped":
            raise _OverError(f"it was ended on {self._host}")

    def _on_held(self, prepared: Prepared) -> None:
        if self._has_been_up:
            self._say("up again")
            return
        self._has_been_up = True
        for line in instructions(self._name, self._host, prepared):
            self._say(line)

    def _tell(self, words: bytes) -> None:
        try:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(words)
            self._process.stdin.flush()
        except OSError:
            # It has ended, and its output says so.
            return

    def _is_asked_to_end(self, within: float) -> bool:
        return bool(select.select([self._wake], [], [], within)[0])

    def _end_process(self) -> None:
        """Have the far side remove everything, and end ssh."""
        process = self._process
        if process is None:
            return
        self._tell(b"bye\n")
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        until = time.monotonic() + _FAREWELL
        while _chunk(process.stdout, until):
            # Whatever it says now is nothing that anybody waits for.
            continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()
        process.wait()
        process.stdout.close()
        self._process = None

    def _leave(self) -> None:
        self._end_process()
        if self._held is not None:
            self._held.close()


class _OverError(FarSideError):
    """The bridge is over, and is not tried again."""


def instructions(name: str, host: str, prepared: Prepared) -> list[str]:
    """Return the lines that tell a person what to do on the far side."""
    shim = f"{prepared.folder}/capd.pyz"
    if prepared.is_installed:
        how = ["Claude Code there has it as the MCP server `capd`."]
    else:
        server = {"mcpServers": {"capd": {"command": prepared.python, "args": [shim]}}}
        how = [
            f"Editors there start the MCP server: {prepared.python} {shim}",
            f"  claude mcp add capd -- {prepared.python} {shim}",
            f"  codex mcp add capd -- {prepared.python} {shim}",
            f"  {json.dumps(server)}",
        ]
    return [f"The bridge {name} to {host} is up. Ctrl-C ends it.", *how]


def told(line: bytes) -> dict[str, Any] | None:
    """Return the message in a line from the far side; None if another program wrote the line."""
    text = line.decode("utf-8", "replace")
    if not text.startswith(MARK):
        return None
    try:
        said = json.loads(text[len(MARK) :])
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def ordered(
    ssh: Sequence[str],
    host: str,
    order: dict[str, Any],
    payload: bytes = b"",
    timeout: float | None = None,
) -> dict[str, Any]:
    """Send the far side a command, and return its answer.

    Raises:
        FarSideError: the far side did not carry it out.
    """
    program = far_side_program()
    data = b"%d\n%s%s\n%s" % (len(program), program, json.dumps(order).encode(), payload)
    try:
        process = subprocess.Popen(
            [*ssh, "--", host, _RUN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
    except FileNotFoundError:
        raise FarSideError("there is no program `ssh` here: install OpenSSH's client") from None
    answer, returncode = _answer(process, host, data, timeout)
    said = [each for each in map(told, answer.split(b"\n")) if each is not None]
    if not said:
        raise FarSideError(
            f"{host} cannot be prepared (ssh ended with {returncode}): it takes a shell and "
            "Python 3.8 or newer there, called python3"
        )
    if "failed" in said[-1]:
        raise FarSideError(f"{host}: {said[-1]['failed']}")
    return said[-1]


def _answer(
    process: "subprocess.Popen[bytes]", host: str, data: bytes, timeout: float | None
) -> tuple[bytes, int]:
    """Return what the far side prints, and how ssh ended; the process has ended then."""
    assert process.stdin is not None
    assert process.stdout is not None
    # It is more than a pipe holds, and a far side may print before it has read it.
    writer = threading.Thread(target=_write, args=(process.stdin, data), daemon=True)
    writer.start()
    until = None if timeout is None else time.monotonic() + timeout
    answer = bytearray()
    try:
        while chunk := _chunk(process.stdout, until):
            answer += chunk
            if len(answer) > MOST_SAID:
                raise FarSideError(_too_much(host))
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


def _chunk(pipe: IO[bytes], until: float | None) -> bytes:
    """Return what comes next from a pipe; nothing at its end, and at `until`."""
    left = None if until is None else max(0.0, until - time.monotonic())
    if not select.select([pipe], [], [], left)[0]:
        return b""
    return os.read(pipe.fileno(), 65536)


def _too_much(host: str) -> str:
    return f"{host} says more than {MOST_SAID >> 20} MiB where one line was asked for"


def removed(name: str, host: str, options: Sequence[str] = ()) -> None:
    """Remove the files of a bridge from a host; raises FarSideError."""
    ordered(["ssh", *options, *_ALWAYS], host, {"do": "remove", "name": name})


def name_of(host: str) -> str:
    """Return the name of a bridge to `host` if its user gives none."""
    plain = host.rpartition("@")[2]
    return "".join(each if each.isalnum() and each.isascii() else "-" for each in plain).strip("-")
