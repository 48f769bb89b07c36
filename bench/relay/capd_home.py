"""A capd daemon in a folder of its own, with a tap whose one capability is the echo server."""

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from bench.relay.line_wire import LineWire, WireError
from bench.relay.peers import ECHO_SERVER, SERVER_NAME
from bench.relay.running import Running, started

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.mcp_host import without_capd

CAPABILITY = SERVER_NAME
_START_TIMEOUT = 30.0
_MODEL_TIMEOUT = 60.0


class CapdHome:
    """The folder, and the daemon that runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Relays are compared, so results of 1 MB pass whole here too (docs/results.md).
        whole = {"CAPD_RESULT_LIMIT": "0"}
        self.env = {**without_capd(), **whole, "CAPD_HOME": str(folder)}
        self.socket = str(folder / "run" / "capd.sock")
        self.capd = str(Path(sys.executable).with_name("capd"))
        self.shim = [self.capd, "mcp"]
        """The command that stands for capd in an editor's settings."""
        self.daemon: Running | None = None
        self._define()

    def start(self, argv: list[str] | None = None) -> Running:
        """Start a daemon with `argv`, or else `capd daemon run`, and wait until it serves.

        Raises:
            WireError: it does not serve.
        """
        self.daemon = started(
            argv or [self.capd, "daemon", "run"],
            self.env,
            self.folder,
            self.folder / "daemon.log",
        )
        give_up_at = time.monotonic() + _START_TIMEOUT
        while True:
            try:
                self.ask("status")
            except DaemonDownError as error:
                if time.monotonic() > give_up_at or not self.daemon.is_alive:
                    raise WireError(f"the daemon does not serve: {error}") from None
                time.sleep(0.02)
            else:
                return self.daemon

    def load_model(self) -> str:
        """Load the model before the measurement; return the embedder's state."""
        give_up_at = time.monotonic() + _MODEL_TIMEOUT
        while True:
            with contextlib.suppress(ControlError):
                # The daemon loads the model when something first needs it, as this does.
                self.ask("discover", intent="say that again", limit=1)
            state = str(self.ask("status")["embedder"]["state"])
            if state == "ready" or time.monotonic() > give_up_at:
                return state
            time.sleep(0.1)

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Make a control request to the daemon, and return the result."""
        with Control(self.socket) as control:
            return control.call(method, params)

    def connected(self, session: str, deadline: float) -> LineWire:
        """Open a session straight on the socket."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        sock.connect(self.socket)
        hello = {
            "capd": "hello",
            "protocol": 1,
            "role": "mcp",
            "client": {"name": "bench", "pid": os.getpid()},
            "cwd": str(self.folder),
            "session": session,
        }
        sock.sendall(json.dumps(hello, separators=(",", ":")).encode() + b"\n")
        wire = LineWire(fd := sock.detach(), fd)
        for line in wire.receive(deadline):
            if not line.startswith(b'{"capd":"welcome"'):
                wire.close()
                raise WireError(f"no welcome: {line[:200].decode(errors='replace')}")
        return wire

    def _define(self) -> None:
        tap = self.folder / "tap"
        capability = tap / "capabilities" / CAPABILITY
        capability.mkdir(parents=True)
        (capability / "config.toml").write_text(
            'triggers = ["echo this text back to me", "say that again", "repeat my words"]\n',
            encoding="utf-8",
        )
        (capability / "default.toml").write_text(
            f'[[mcp.servers]]\nname = "{SERVER_NAME}"\ncommand = "node"\n'
            f"args = [{json.dumps(str(ECHO_SERVER))}]\n",
            encoding="utf-8",
        )
        config = self.folder / "config"
        config.mkdir()
        (config / "taps.toml").write_text(
            f'[[taps]]\nname = "bench"\npath = {json.dumps(str(tap))}\n', encoding="utf-8"
        )
