"""What is known of a session's client, and the way to it for as long as it is connected.

There is one for each session, not for each connection: a client that comes back on another
connection finds what it said on the one before.
"""

from typing import TYPE_CHECKING

import msgspec
import trio

from capd.adapters.servers.callers import OnProgress
from capd.core.protocol.outcomes import RefusedError
from capd_protos.codec import JsonCodec
from capd_protos.types import ClientFacts, SessionKey

if TYPE_CHECKING:
    from capd.adapters.clients.upstream import Upstream


class _UriParams(msgspec.Struct):
    uri: str


_URI: JsonCodec[_UriParams] = JsonCodec(_UriParams)


class ClientConnection:
    """A session's client, as servers and the session's own parts reach it: a `Peer`."""

    __slots__ = (
        *("client", "client_sessions", "is_initialized", "linked_by", "log_level"),
        *("relisted", "session", "subscriptions", "upstream"),
    )

    def __init__(self, session: SessionKey) -> None:
        self.session = session
        self.client = ClientFacts()
        """What the client says of itself, as far as it has said anything."""
        self.log_level = ""
        """From which level on the client wants log messages; empty where it never said."""
        self.subscriptions: set[str] = set()
        """Resources that a client of the handshake generation has subscribed to."""
        self.is_initialized = False
        """Whether the client has completed its handshake: before it no notification is sent."""
        self.client_sessions: set[str] = set()
        """Ids under which the client itself knows the conversation; `/clear` brings another."""
        self.linked_by = ""
        """How prompt hooks find the session, once one has."""
        self.relisted = trio.Event()
        """Set once the client has listed the tools as they are; another for each change."""
        self.upstream: Upstream | None = None
        """The connection that there is at this moment."""

    @property
    def is_connected(self) -> bool:
        """Whether the client can be reached at this moment."""
        return self.upstream is not None

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Ask the client outside of any call.

        Raises:
            ServerError, RefusedError: it answered with an error; it cannot be asked.
        """
        if self.upstream is None:
            raise RefusedError("the client is not connected at this moment")
        return await self.upstream.ask(method, params, on_progress)

    def tell(self, method: str, params: bytes) -> None:
        """Notify the client outside of any call; while it is not connected, drop it."""
        if self.upstream is None:
            return
        match method.removeprefix("notifications/").split("/"):
            case ["prompts" | "resources" as what, "list_changed"]:
                self.upstream.list_changed(what)
            case ["resources", "updated"]:
                self.upstream.resource_updated(_URI.decode(params).uri, params)
            case _ if self.is_initialized:
                self.upstream.notify(method, params)
