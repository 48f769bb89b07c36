"""How a server connection sees a client: as the caller of a request, or the holder of a lease.

A server's requests go to the caller of a request (`Caller`), or to a session that holds a lease on
the server (`Peer`). The code of the client's connection decides whether the client is asked by a
request or by a result (`input_required`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import trio

from capd.core.protocol.outcomes import RefusedError
from capd_protos.types import ClientFacts, SessionKey

NOBODY = SessionKey("")

OnProgress = Callable[[bytes], None]


class Peer(Protocol):
    """The client of a session, as a server connection reaches it."""

    @property
    def session(self) -> SessionKey:
        """The session of this client."""
        ...

    @property
    def client(self) -> ClientFacts:
        """The client info, as far as the client has sent any until now."""
        ...

    @property
    def log_level(self) -> str:
        """The lowest level of log messages that the client wants; empty if it never set one."""
        ...

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a server's request; return the result in the client's answer.

        `on_progress` receives the params of the client's progress notifications, with the token
        that the server chose.

        Raises:
            ServerError: the client answered with this error; it is passed on to the server.
            RefusedError: the client cannot be asked, or has not answered.
            MalformedError: the params are not an object.
        """
        ...

    def tell(self, method: str, params: bytes) -> None:
        """Send the client a server's notification with this method and these params."""
        ...


class Caller(Peer, Protocol):
    """A client that waits for the outcome of a call."""

    async def dispatched(self) -> None:
        """Note that the call's first byte is about to be written: from now on it may run."""
        ...

    def progress(self, params: bytes) -> None:
        """Send the client a progress notification with these params."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CallHooks:
    """A caller made of two callbacks, for calls that capd makes itself. A server cannot ask it."""

    on_dispatched: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    on_progress: Callable[[bytes], None] = lambda _: None
    session: SessionKey = NOBODY
    client: ClientFacts = field(default_factory=ClientFacts)
    log_level: str = ""

    async def dispatched(self) -> None:
        """Call `on_dispatched`: the call's first byte is about to be written."""
        await self.on_dispatched()

    def progress(self, params: bytes) -> None:
        """Call `on_progress` with the params of a progress notification."""
        self.on_progress(params)

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Raise RefusedError, because there is nobody to ask."""
        del params, on_progress
        await trio.lowlevel.checkpoint()
        raise RefusedError(f"nobody can be asked {method} here")

    def tell(self, method: str, params: bytes) -> None:
        """Do nothing: no client waits for a server's notification."""
