"""Who stands behind a call and behind a hold: whom a server's words can reach.

A server connection knows clients by these two alone. What they do with a question (ask the editor
at once, or let the call come back with it) is the client side's business.
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
    """A session's client, as a server may speak to it."""

    @property
    def session(self) -> SessionKey:
        """Whose client it is."""
        ...

    @property
    def client(self) -> ClientFacts:
        """What it says of itself at this moment."""
        ...

    @property
    def log_level(self) -> str:
        """From which level on it wants log messages; empty where it never said."""
        ...

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Return the client's result for a server's request.

        `on_progress` hears the params of progress that it reports, under the server's token.

        Raises:
            ServerError: the client answered with an error, which is passed on.
            RefusedError: it cannot be asked, or has not answered.
            MalformedError: the params are no object.
        """
        ...

    def tell(self, method: str, params: bytes) -> None:
        """Pass a server's notification on."""
        ...


class Caller(Peer, Protocol):
    """The one that waits for a call's outcome."""

    async def dispatched(self) -> None:
        """Note that the first byte is about to be written: after it the call may have run."""
        ...

    def progress(self, params: bytes) -> None:
        """Pass on the params of a progress notification."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class CallHooks:
    """A caller made of its parts; without any, one that nobody can reach."""

    on_dispatched: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    on_progress: Callable[[bytes], None] = lambda _: None
    session: SessionKey = NOBODY
    client: ClientFacts = field(default_factory=ClientFacts)
    log_level: str = ""

    async def dispatched(self) -> None:
        """Note that the first byte is about to be written."""
        await self.on_dispatched()

    def progress(self, params: bytes) -> None:
        """Pass on the params of a progress notification."""
        self.on_progress(params)

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Refuse: there is nobody to ask."""
        del params, on_progress
        await trio.lowlevel.checkpoint()
        raise RefusedError(f"nobody can be asked {method} here")

    def tell(self, method: str, params: bytes) -> None:
        """Tell nobody."""
