"""What all bridges of this machine do: open, serve, come back after a cut, and leave nothing.

open the bridge ──> prepare ──> serve ──cut──> prepare ... as long as it takes
                          ^         │
                          └─daemon──┘──revoked, a signal, ended over there──> removed
"""

import json
import secrets
import select
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from capd_client.bridge.bundle import bundle, far_side_program
from capd_client.bridge.far_side import MARK
from capd_client.bridge.holding import HeldBridge
from capd_client.control import DaemonDownError

RUN = (
    "import sys; n = int(sys.stdin.buffer.readline()); "
    'exec(compile(sys.stdin.buffer.read(n), "capd-bridge", "exec"))'
)
"""Reads a program from standard input and runs it. Nothing of it is in the list of processes."""
BEAT = 5.0
"""Seconds between two words to the far side, which takes a minute of silence for the end."""
FAREWELL = 5.0
"""Seconds for the far side to remove what is there."""
_FIRST_PAUSE = 0.2
_LAST_PAUSE = 2.0
_PREPARE_TIMEOUT = 30.0


class FarSideError(Exception):
    """The far side cannot be used; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the far side has now."""

    folder: str
    python: str
    is_installed: bool


class FarBridge(ABC):
    """One bridge to one other place."""

    kind: str
    """How it gets there, as `capd status` shows it."""

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
        """`wake` is readable when a signal asks this to end."""
        self._socket = socket
        self._name = name
        self._target = target
        self._is_installed = is_installed
        self._say = say
        self._wake = wake
        self._has_been_up = False
        self._held: HeldBridge | None = None

    def run(self) -> None:
        """Keep the bridge until a signal comes.

        Raises:
            FarSideError: it ended otherwise, or could not be opened.
            ControlError, DaemonDownError: the daemon refused it, or is not there at first.
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
        # Later nobody is there to be asked for a password for long.
        timeout = _PREPARE_TIMEOUT if self._has_been_up else None
        said = self._ordered(order, shim, timeout)
        return Prepared(str(said["folder"]), str(said["python"]), bool(said.get("installed")))

    @abstractmethod
    def _ordered(
        self, order: dict[str, Any], payload: bytes, timeout: float | None
    ) -> dict[str, Any]:
        """Have the far side do something, and return what it says."""

    @abstractmethod
    def _serve(self, held: HeldBridge, prepared: Prepared, generation: str) -> bool:
        """Serve until it is cut; return whether a signal came. Nothing is left running."""

    def _leave(self) -> None:
        if self._held is not None:
            self._held.close()

    def _hear(self, held: HeldBridge) -> None:
        try:
            heard = held.hear()
        except DaemonDownError:
            held.close()
            self._held = None
            raise
        if heard.get("method") == "bridge_ended":
            raise OverError(f"the bridge {self._name} was revoked")

    def _on_told(self, said: dict[str, Any], prepared: Prepared) -> None:
        if said.get("removed"):
            if said.get("why") == "stopped":
                raise OverError(f"it was ended on {self._target}")
            return
        if not said.get("held"):
            return
        if self._has_been_up:
            self._say("up again")
            return
        self._has_been_up = True
        for line in instructions(self._name, self._target, prepared):
            self._say(line)

    def _is_asked_to_end(self, within: float) -> bool:
        return bool(select.select([self._wake], [], [], within)[0])


class OverError(FarSideError):
    """The bridge is over, and is not tried again."""


def instructions(name: str, host: str, prepared: Prepared) -> list[str]:
    """Return what a person does on the far side."""
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
    """Return what the far side says in a line; None where it is another program's."""
    text = line.decode("utf-8", "replace")
    if not text.startswith(MARK):
        return None
    try:
        said = json.loads(text[len(MARK) :])
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def ordered(
    command: Sequence[str],
    target: str,
    order: dict[str, Any],
    payload: bytes = b"",
    timeout: float | None = None,
) -> dict[str, Any]:
    """Have the far side do something, and return what it says.

    `command` runs `RUN` on the far side.

    Raises:
        FarSideError: it did not.
    """
    program = far_side_program()
    data = b"%d\n%s%s\n%s" % (len(program), program, json.dumps(order).encode(), payload)
    try:
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.PIPE,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError:
        raise FarSideError(f"there is no program `{command[0]}` here") from None
    except subprocess.TimeoutExpired:
        raise FarSideError(f"{target} does not answer") from None
    said = [each for each in map(told, done.stdout.split(b"\n")) if each is not None]
    if not said:
        raise FarSideError(
            f"{target} cannot be prepared ({command[0]} ended with {done.returncode}): it takes a"
            " shell and Python 3.8 or newer there, called python3"
        )
    if "failed" in said[-1]:
        raise FarSideError(f"{target}: {said[-1]['failed']}")
    return said[-1]
