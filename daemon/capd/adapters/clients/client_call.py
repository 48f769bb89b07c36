"""The client behind one request, in the form that server connections expect: a `Caller`.

A request is *durable* if a later daemon can continue it and answer its client.
"""

from typing import Protocol

import msgspec

from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.conversation import Conversation
from capd.adapters.frame_writer import FrameCutError, WriterFullError
from capd.adapters.servers.callers import OnProgress
from capd.core.protocol import generations
from capd.core.protocol.far_roots import without_roots
from capd.core.protocol.outcomes import RefusedError
from capd_protos.types import ClientFacts, SessionKey

RequestId = int | str | float | None


def dispatched_line(request_id: str | float) -> bytes:
    """Return the frame `dispatched`: the request with this id may run from now on."""
    return b'{"capd":"dispatched","id":%s}' % msgspec.json.encode(request_id)


def durable_line(request_id: str | float) -> bytes:
    """Return the frame `durable`: another daemon can continue the request with this id."""
    return b'{"capd":"durable","id":%s}' % msgspec.json.encode(request_id)


class Connected(Protocol):
    """What a `ClientCall` needs of the connection that its request came on."""

    session: SessionKey
    wants_dispatched: bool
    knows_durable: bool
    """Whether the client sends a durable request again to the next daemon."""
    again: frozenset[int | str | float]
    """The ids of requests that an earlier daemon began and that the client has not repeated yet."""
    client: ClientFacts
    connection: ClientConnection

    @property
    def is_over(self) -> bool:
        """Whether the connection ends, or has ended."""
        ...

    async def send(self, line: bytes, related: RequestId) -> None:
        """Write the line to the client; `related` is the id of the request that it belongs to.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        ...

    def notify(self, method: str, params: bytes, related: RequestId) -> None:
        """Send the client a notification; `related` is the id of the request that it belongs to."""
        ...

    async def ask(
        self, method: str, params: bytes, on_progress: OnProgress, related: RequestId
    ) -> bytes:
        """Send the client a server's request; return the result in the client's answer.

        `related` is the id of the client's own request during which the server asks.
        """
        ...


class ClientCall:
    """Reaches the client behind one request, on behalf of a server connection."""

    __slots__ = (
        *("_connection", "_token", "client", "log_level", "request_id", "session"),
        "may_have_run",
    )

    def __init__(self, connection: Connected, request_id: RequestId) -> None:
        self.request_id = request_id
        self.session = connection.session
        self.client = connection.client
        self.log_level = connection.connection.log_level
        self.may_have_run = False
        """Whether the request may have had an effect: a server may have got a part of it, or this
        daemon or an earlier one has begun its script."""
        self._connection = connection
        self._token: msgspec.Raw | None = None

    def read_meta(self, members: generations.Members, conversation: Conversation) -> bool:
        """Note what `_meta` in the request's params says; return whether the request is stateless.

        `members` are the params. If they contain client info, `conversation` gets it. If the client
        is behind a bridge, its roots are removed from `members`.

        Raises:
            EnvelopeError: the client info or version in `_meta` is invalid.
            MalformedError: `_meta` is not an object.
        """
        if self._connection.connection.is_far:
            members.update(without_roots(members))
        written = members.get("_meta")
        if written is None:
            return False
        meta = generations.members_of(written)
        self._token = meta.get("progressToken")
        said = generations.envelope(meta)
        if said is None:
            return False
        self.client, self.log_level = said.client, said.log_level
        conversation.on_client_info(said.client)
        return True

    async def dispatched(self) -> None:
        """Send the client the `dispatched` frame, if its hello asked for it.

        Raises:
            RefusedError: the client's connection is gone.
        """
        self.may_have_run = True
        if not self._connection.wants_dispatched or self.request_id is None:
            return
        try:
            await self._connection.send(dispatched_line(self.request_id), self.request_id)
        except (WriterFullError, FrameCutError):
            raise RefusedError("the client's connection is gone") from None

    @property
    def is_durable(self) -> bool:
        """Whether a later daemon can continue the request and give the client its answer."""
        return self._connection.knows_durable and self.request_id is not None

    @property
    def is_left(self) -> bool:
        """Whether the connection is ending. A cancellation then does not come from the client."""
        return self._connection.is_over

    async def durable(self) -> None:
        """Send the client the frame `durable`: the request may run from now on.

        If this daemon ends, the next one can continue it.

        Raises:
            RefusedError: the client's connection is gone.
        """
        assert self.request_id is not None
        self.may_have_run = True
        try:
            await self._connection.send(durable_line(self.request_id), self.request_id)
        except (WriterFullError, FrameCutError):
            raise RefusedError("the client's connection is gone") from None

    def was_begun(self) -> bool:
        """Tell whether an earlier daemon began the request. Only the first call can return True."""
        if self.request_id not in self._connection.again:
            return False
        self.may_have_run = True
        self._connection.again -= {self.request_id}
        return True

    def progress(self, params: bytes) -> None:
        """Send the client a server's progress notification, with the client's own progress token.

        `params` are the params of the notification. Nothing is sent if the client gave no token.
        """
        if self._token is not None:
            members = generations.members_of(params)
            members["progressToken"] = self._token
            self.tell("notifications/progress", generations.joined(members))

    def tell(self, method: str, params: bytes) -> None:
        """Send the client a server's notification.

        A log message is left out if the client is stateless and its request names no log level.
        """
        is_log = method == "notifications/message"
        if is_log and generations.is_stateless(self.client) and not self.log_level:
            return
        self._connection.notify(method, params, self.request_id)

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Send the client a server's request; return the client's result.

        `on_progress` receives the params of progress that the client reports. The errors are those
        of `Peer.ask` in `servers/callers.py`.
        """
        return await self._connection.ask(method, params, on_progress, self.request_id)
