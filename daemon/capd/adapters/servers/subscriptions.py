"""What capd subscribes to at a server on behalf of its sessions, in either era.

Handshake era: one `resources/subscribe` a URI, for the first session, one unsubscribe after the
last. Stateless era: one `subscriptions/listen` for the server's lists and all URIs, opened anew
when the URIs change.
"""

import trio

from capd.adapters.servers.callers import Peer
from capd.adapters.servers.lane import Lane
from capd.core.asking import lowest_level
from capd.core.eras import raw
from capd.core.outcomes import NotSentError, OutcomeUnknownError, ServerError
from capd_protos.types import SessionKey

ASK_TIMEOUT = 30.0
_LISTEN_AGAIN = 1.0
_FOREVER = 10.0 * 365 * 86_400


class Subscriptions:
    """The subscriptions of one lane."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._changed = trio.Event()
        self._level = ""

    async def subscribe(self, uri: str, peer: Peer) -> bytes:
        """Have `peer` told of changes of `uri`; return the server's result.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: it is not subscribed.
        """
        subscribers = self._lane.unasked.subscribers.setdefault(uri, {})
        is_first = not subscribers
        subscribers[peer.session] = peer
        if not is_first:
            return b"{}"
        if self._lane.is_stateless:
            self._listen_anew()
            return b"{}"
        try:
            return await self._lane.ask("resources/subscribe", {"uri": raw(uri)}, ASK_TIMEOUT)
        except (ServerError, NotSentError, OutcomeUnknownError):
            self._forget(uri, peer.session)
            raise

    async def unsubscribe(self, uri: str, session: SessionKey) -> bytes:
        """Tell `session` no more of `uri`; return the server's result.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the server answered so.
        """
        if not self._forget(uri, session):
            return b"{}"
        if self._lane.is_stateless:
            self._listen_anew()
            return b"{}"
        return await self._lane.ask("resources/unsubscribe", {"uri": raw(uri)}, ASK_TIMEOUT)

    def leave(self, session: SessionKey) -> list[str]:
        """Forget a session; return the URIs that nobody wants to hear of any more."""
        uris = [u for u, who in self._lane.unasked.subscribers.items() if session in who]
        return [uri for uri in uris if self._forget(uri, session)]

    async def follow_level(self) -> None:
        """Have the server log as much as the session that wants most.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the server answered so.
        """
        level = lowest_level(peer.log_level for peer in self._lane.holders.values())
        is_told = level and level != self._level and not self._lane.is_stateless
        if is_told and "logging" in self._lane.capabilities:
            self._level = level
            await self._lane.ask("logging/setLevel", {"level": raw(level)}, ASK_TIMEOUT)

    async def listen(self) -> None:
        """Keep the stream of a stateless server open, until it does not know it."""
        while self._lane.is_stateless and self._lane.is_alive:
            self._changed = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cancel_when_changed, nursery.cancel_scope)
                if not await self._stream():
                    return
                nursery.cancel_scope.cancel()

    async def _stream(self) -> bool:
        """Be on one stream; return whether another one is worth trying."""
        wanted: dict[str, object] = {}
        for kind in ("tools", "prompts", "resources"):
            if b'"listChanged"' in bytes(self._lane.capabilities.get(kind, b"")):
                wanted[f"{kind}ListChanged"] = True
        if self._lane.unasked.subscribers:
            wanted["resourceSubscriptions"] = sorted(self._lane.unasked.subscribers)
        if not wanted:
            await trio.sleep_forever()
        members = {"notifications": raw(wanted)}
        try:
            await self._lane.ask("subscriptions/listen", members, _FOREVER)
        except (ServerError, NotSentError) as error:
            self._lane.log.info("not_listening", reason=str(error))
            return False
        except OutcomeUnknownError:
            return self._lane.is_alive
        # It ended the stream in good order: it may be about to end itself.
        await trio.sleep(_LISTEN_AGAIN)
        return True

    async def _cancel_when_changed(self, scope: trio.CancelScope) -> None:
        await self._changed.wait()
        scope.cancel()

    def _listen_anew(self) -> None:
        self._changed.set()

    def _forget(self, uri: str, session: SessionKey) -> bool:
        """Return whether nobody wants to hear of `uri` any more."""
        subscribers = self._lane.unasked.subscribers.get(uri)
        if subscribers is None or subscribers.pop(session, None) is None or subscribers:
            return False
        del self._lane.unasked.subscribers[uri]
        return True
