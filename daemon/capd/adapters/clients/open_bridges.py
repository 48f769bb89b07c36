"""The bridges that are open, each with its socket and its credential.

Clients on another host or in a container reach this daemon over a bridge. That other place is the
bridge's *far side*.

    bridge_open ──> open ──its command or the daemon ends───> closed
                      └──bridge_revoke──────────────────────> revoked

A bridge lives as long as the control connection on which `capd bridge` asked for it. Its credential
is a random text, of which this process keeps only a digest. A hello at the bridge's socket must
contain the credential. No other socket accepts it, and the next bridge of the same name gets a new
one.

A bridge may have a *runner*: a process on the far side that starts servers there
(`capd_client/bridge/runner.py`).
"""

import contextlib
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import trio

from capd.adapters.clients.unix_listener import make_private, private_socket
from capd.core.errors import CapdError
from capd.core.sessions.bridges import BridgeRules, is_name

MOST_BRIDGES = 16
BACKLOG = 64
_SUFFIX = ".sock"

log = structlog.get_logger(actor="gateway")


class NoBridgeError(CapdError):
    """A bridge cannot be opened, or there is none; the text says why."""


@dataclass(slots=True, eq=False)
class OpenBridge:
    """An open bridge: its socket, its command, and the connections that came over it."""

    name: str
    kind: str
    target: str
    path: Path
    listener: trio.SocketListener
    digest: bytes
    opened_at: float
    pid: int
    """The process whose control connection holds the bridge open."""
    streams: set[trio.SocketStream] = field(default_factory=set)
    """The connections that have a session, or had one until a moment ago."""
    runners: set[trio.SocketStream] = field(default_factory=set)
    """The connections of its runner: those that wait, and one for each server that it runs."""
    refused: int = 0
    is_revoked: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    @property
    def sessions(self) -> int:
        """How many connections with a session are open."""
        self.streams = {each for each in self.streams if each.socket.fileno() >= 0}
        return len(self.streams)

    @property
    def open_runners(self) -> int:
        """How many connections of the bridge's runner are open, those of servers included."""
        self.runners = {each for each in self.runners if each.socket.fileno() >= 0}
        return len(self.runners)

    def admits(self, credential: str) -> bool:
        """Tell whether a hello contains the bridge's credential, and the bridge is not revoked."""
        is_right = hmac.compare_digest(_digest(credential), self.digest)
        return is_right and not self.is_revoked and not self.scope.cancel_called


def _digest(credential: str) -> bytes:
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()


class OpenBridges:
    """Opens bridges, finds them, and ends them."""

    def __init__(self, folder: Path, rules: Callable[[], Mapping[str, BridgeRules]]) -> None:
        """Create an empty set. `folder` contains only the bridges' sockets.

        `rules` returns the bridges that the configuration has a table for, with their rules.
        """
        self._folder = folder
        self._rules = rules
        self._open: dict[str, OpenBridge] = {}

    def __iter__(self) -> Iterator[OpenBridge]:
        """Iterate over the open bridges, the oldest first."""
        return iter(tuple(self._open.values()))

    def clear(self) -> None:
        """Remove the sockets that an earlier daemon has left."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if path.suffix == _SUFFIX:
                    path.unlink(missing_ok=True)

    @property
    def configured(self) -> list[str]:
        """The names of the bridges that the configuration has a table for."""
        return list(self._rules())

    @contextlib.contextmanager
    def opened(
        self, name: str, kind: str, target: str, pid: int
    ) -> Iterator[tuple[OpenBridge, str]]:
        """Open the bridge `name` while the block runs; yield it and its credential.

        `kind` and `target` say where it leads, for a person. `pid` is the process that asks for it.

        Raises:
            NoBridgeError: the bridge has no table in the configuration, is open already, or its
                socket cannot be created.
        """
        self._check(name)
        credential = secrets.token_urlsafe(32)
        path = self._folder / f"{name}{_SUFFIX}"
        with contextlib.ExitStack() as stack:
            try:
                make_private(self._folder)
                listener = stack.enter_context(private_socket(path, BACKLOG))
            except (CapdError, OSError) as error:
                raise NoBridgeError(f"the bridge's socket cannot be made: {error}") from None
            digest = _digest(credential)
            bridge = OpenBridge(name, kind, target, path, listener, digest, time.time(), pid)
            self._open[name] = bridge
            log.info("bridge_opened", bridge=name, kind=kind)
            try:
                yield bridge, credential
            finally:
                bridge.scope.cancel()
                del self._open[name]
                log.info("bridge_closed", bridge=name, revoked=bridge.is_revoked)

    def _check(self, name: str) -> None:
        if not is_name(name):
            raise NoBridgeError("a bridge's name is 1 to 40 of A-Z a-z 0-9 . _ -")
        if name not in self._rules():
            raise NoBridgeError(
                f"config.toml does not say what the bridge {name} may use: add a table "
                f'[bridges.{name}] with capabilities = ["NAME"] or allow = ["SERVER:*"] '
                "(docs/bridges.md)"
            )
        if name in self._open:
            raise NoBridgeError(
                f"the bridge {name} is open already, by process {self._open[name].pid}: end that "
                f"one, or run: capd bridge revoke {name}"
            )
        if len(self._open) >= MOST_BRIDGES:
            raise NoBridgeError(f"{MOST_BRIDGES} bridges are open already: end one first")

    def revoke(self, name: str) -> OpenBridge | None:
        """End the bridge `name` and its credential at once; return it, or None if there is none."""
        bridge = self._open.get(name)
        if bridge is not None:
            bridge.is_revoked = True
            bridge.scope.cancel()
        return bridge
