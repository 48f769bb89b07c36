"""A bridge over OpenSSH: the daemon's bridge socket, forwarded to a socket on another host.

    open the bridge ──> prepare (ssh) ──> hold (ssh -R) ──cut──> prepare ... as long as it takes
                              ^                │
                              └─daemon back────┘──revoked, a signal, ended on the host──> removed

The far side needs sshd and Python 3.8. It gets one file and the bridge's credential, over the
standard input of ssh. `hold` runs there, and removes both when its input ends, even if this process
is killed.
"""

import contextlib
import os
import select
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

from capd_client.bridge.holding import HeldBridge
from capd_client.bridge.opened import (
    BEAT,
    FAREWELL,
    MOST_SAID,
    RUN,
    FarBridge,
    FarSideError,
    OverError,
    Prepared,
    next_chunk,
    parse_report,
    send_order,
    too_much,
)

_RUN = f"exec python3 -c '{RUN}'"
_ALWAYS = (
    *("-T", "-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "PermitLocalCommand=no"),
    *("-o", "ForwardAgent=no", "-o", "ForwardX11=no", "-o", "RequestTTY=no"),
)
_HELD = (
    *("-o", "ExitOnForwardFailure=yes", "-o", "StreamLocalBindUnlink=yes"),
    *("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2", "-o", "ConnectTimeout=5"),
)

_LAST_WORDS = 1.0
"""Seconds that ssh gets to end by itself after its session has ended."""


class SshBridge(FarBridge):
    """A bridge to another host, over ssh and a forwarded socket."""

    kind = "ssh"

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
        """Create the bridge to `host`; it is not open yet.

        `options` are options of ssh. The other parameters are those of `FarBridge`.
        """
        super().__init__(socket, name, host, is_installed=is_installed, say=say, wake=wake)
        self._ssh = ["ssh", *options, *_ALWAYS]
        self._process: subprocess.Popen[bytes] | None = None

    def _ordered(
        self, order: dict[str, Any], payload: bytes, timeout: float | None
    ) -> dict[str, Any]:
        command = [*self._ssh, "-o", "ConnectTimeout=5", "--", self._target, _RUN]
        return send_order(command, self._target, order, payload, timeout)

    def _serve(self, held: HeldBridge, prepared: Prepared, generation: str) -> bool:
        folder = shlex.quote(prepared.folder)
        self._process = subprocess.Popen(
            [
                *self._ssh,
                *_HELD,
                *("-R", f"{prepared.folder}/socket:{held.socket}", "--", self._target),
                f"exec python3 {folder}/capd.pyz hold {generation}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            return self._follow(self._process, held, prepared)
        finally:
            self._end_process()

    def _follow(
        self, process: "subprocess.Popen[bytes]", held: HeldBridge, prepared: Prepared
    ) -> bool:
        assert process.stdin is not None
        assert process.stdout is not None
        out, buffer, beat_at = process.stdout.fileno(), b"", 0.0
        is_held = False
        while True:
            if time.monotonic() >= beat_at:
                beat_at = time.monotonic() + BEAT
                self._tell(b"beat\n")
            ready, _, _ = select.select([out, held.fileno(), self._wake], [], [], BEAT)
            if self._wake in ready:
                return True
            if held.fileno() in ready:
                self._hear(held)
            if out in ready:
                chunk = os.read(out, 65536)
                if not chunk:
                    # ssh's session is over, but ssh waits for connections that editors still have.
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LAST_WORDS)
                    raise FarSideError(f"ssh {self._target} ended ({process.returncode})")
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                if len(buffer) > MOST_SAID:
                    raise OverError(too_much(self._target))
                for each in filter(None, map(parse_report, lines)):
                    if each.get("removed"):
                        self._on_removed(each)
                    elif each.get("held") and not is_held:
                        is_held = True
                        self._on_held(prepared)

    def _tell(self, words: bytes) -> None:
        try:
            assert self._process is not None
            assert self._process.stdin is not None
            self._process.stdin.write(words)
            self._process.stdin.flush()
        except OSError:
            # ssh has ended, which the end of its output shows as well.
            return

    def _end_process(self) -> None:
        """Make the far side remove its files, and end ssh."""
        process = self._process
        if process is None:
            return
        self._tell(b"bye\n")
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        until = time.monotonic() + FAREWELL
        while next_chunk(process.stdout, until):
            # Discard the rest of its output.
            continue
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, until - time.monotonic()))
        process.kill()
        process.wait()
        process.stdout.close()
        self._process = None


def remove_files(name: str, host: str, options: Sequence[str] = ()) -> None:
    """Remove the files of the bridge `name` from the host `host`; `options` are options of ssh.

    Raises:
        FarSideError: the host cannot be reached, or the files could not be removed.
    """
    command = ["ssh", *options, *_ALWAYS, "--", host, _RUN]
    send_order(command, host, {"do": "remove", "name": name})


def name_of(host: str) -> str:
    """Return the default name of a bridge to `host`."""
    plain = host.rpartition("@")[2]
    return "".join(each if each.isalnum() and each.isascii() else "-" for each in plain).strip("-")
