"""capd's subscriptions at a server on behalf of its sessions, in either generation.

At a server of the handshake generation, capd sends `resources/subscribe` for a URI when the first
session wants it, and unsubscribes after the last. It sets the most detailed log level that a
session wants. At a server of the stateless generation, capd opens one `subscriptions/listen` for
the server's lists, all URIs and all tasks that sessions listen for. When the set of URIs or tasks
changes, the next stream is opened before the old one is closed, so that no notification is missed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import trio

from capd.adapters.servers.callers import NOBODY, OnProgress, Peer
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_lines import ACKNOWLEDGED as AGREED
from capd.core.protocol.generations import joined, members_or_none, raw
from capd.core.protocol.message_target import lowest_level
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, RefusedError, ServerError
from capd.core.protocol.tasks import with_tasks
from capd_protos.codec import MalformedError
from capd_protos.types import ClientFacts, SessionKey

ASK_TIMEOUT = 30.0
LISTEN_AGAIN = 1.0
"""Seconds before a stream that has ended is opened again, so that a server that ends every stream
at once causes little load."""
ACKNOWLEDGE_PATIENCE = 3.0
"""Seconds after which a stream counts as open, even without the server's acknowledgement."""
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_ENDED_AT_ONCE = b'{"code":-32603,"message":"the server ended the stream at once"}'
_FOREVER = 10.0 * 365 * 86_400
_UNANSWERED = (ServerError, NotSentError, OutcomeUnknownError)
_KINDS = ("tools", "prompts", "resources")


class Subscriptions:
    """The subscriptions of one server connection; `follow` them in a task of its own."""

    def __init__(self, server_connection: ServerConnection) -> None:
        self._server_connection = server_connection
        self._messages = server_connection.server_messages
        self._lock = trio.Lock()
        self._changed = trio.Event()
        self._subscribed: set[str] = set()
        """URIs for which the server, of the handshake generation, sends updates."""
        self._unsure: set[str] = set()
        """URIs for which the server may have a subscription: the request may have failed."""
        self._to_renew: dict[str, dict[SessionKey, Peer]] = {}
        """The subscriptions to be renewed: by URI, the clients that had them."""
        self._level = ""
        self._open: _Stream | None = None
        self._newest: _Stream | None = None
        """The stream that was opened last, even if the server refused it."""
        self._attempted = trio.Event()

    async def subscribe(self, uri: str, peer: Peer) -> bytes:
        """Subscribe `peer` to `uri`; return the server's result.

        The result is `{}` if the server is not asked: it sends updates of `uri` already, or is of
        the stateless generation.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the subscription failed.
        """
        self._messages.subscribers.setdefault(uri, {})[peer.session] = peer
        try:
            if self._server_connection.is_stateless:
                return await self._wait_for_stream("resourceSubscriptions", uri)
            async with self._lock:
                if uri in self._subscribed:
                    return b"{}"
                self._unsure.add(uri)
                result = await self._ask("resources/subscribe", uri)
                self._subscribed.add(uri)
                return result
        except BaseException as error:
            if isinstance(error, ServerError):
                self._unsure.discard(uri)
            self._forget(uri, peer.session)
            # A cancelled request may have succeeded, so have it unsubscribed.
            self._changed.set()
            raise

    async def unsubscribe(self, uri: str, session: SessionKey) -> bytes:
        """End the subscription of `session` to `uri`; return the server's result.

        The result is `{}` if the server is not asked: another session is subscribed to `uri`, or
        the server is of the stateless generation.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the request failed.
        """
        if not self._forget(uri, session):
            return b"{}"
        self._changed.set()
        if self._server_connection.is_stateless:
            return b"{}"
        async with self._lock:
            return await self._unsubscribe_last(uri)

    async def watch(self, task: str, peer: Peer) -> bool:
        """Listen for a task on behalf of `peer`; return whether the server announces its changes.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the server could not be asked.
        """
        if not self._server_connection.is_stateless:
            # Only a stream announces changes of tasks, and servers of the handshake generation have
            # no streams.
            return False
        self._messages.watchers.setdefault(task, {})[peer.session] = peer
        is_agreed = False
        try:
            await self._wait_for_stream("taskIds", task)
            is_agreed = self._newest is not None and task in self._newest.tasks
        finally:
            if not is_agreed:
                self.unwatch(task, peer.session)
        return is_agreed

    def unwatch(self, task: str, session: SessionKey) -> None:
        """Stop listening for a task on behalf of a session. The server is told a little later."""
        watchers = self._messages.watchers
        if watchers.get(task, {}).pop(session, None) is not None and not watchers[task]:
            del watchers[task]
            self._changed.set()

    def join(self, peer: Peer, uris: Iterable[str], tasks: Iterable[str] = ()) -> None:
        """Add a session that holds the instance, given by its client `peer`.

        `uris` are the resources it subscribed to before, and `tasks` the tasks that it listened
        for.
        """
        for task in tasks:
            self._messages.watchers.setdefault(task, {})[peer.session] = peer
        for uri in uris:
            if peer.session not in self._messages.subscribers.get(uri, {}):
                self._to_renew.setdefault(uri, {})[peer.session] = peer
        self._changed.set()

    def leave(self, session: SessionKey) -> None:
        """Drop a session's subscriptions; `follow` unsubscribes at the server."""
        for uri in list(self._messages.subscribers):
            self._forget(uri, session)
        for task in list(self._messages.watchers):
            self.unwatch(task, session)
        for due in self._to_renew.values():
            due.pop(session, None)
        self._changed.set()

    async def follow_level(self) -> None:
        """Set the server's log level to the lowest that a session wants.

        Raises:
            ServerError, NotSentError, OutcomeUnknownError: the request failed.
        """
        level = lowest_level([peer.log_level for peer in self._server_connection.holders.values()])
        is_told = level and level != self._level and not self._server_connection.is_stateless
        if is_told and "logging" in self._server_connection.capabilities:
            before, self._level = self._level, level
            try:
                await self._server_connection.ask(
                    "logging/setLevel", {"level": raw(level)}, ASK_TIMEOUT
                )
            except BaseException:
                self._level = before
                raise

    async def follow(self) -> None:
        """Keep the subscriptions at the server as sessions want them, until the server is gone."""
        async with trio.open_nursery() as nursery:
            while self._server_connection.is_alive:
                self._changed = trio.Event()
                if self._to_renew:
                    nursery.start_soon(self._renew, self._to_renew)
                    self._to_renew = {}
                if self._server_connection.is_stateless:
                    await self._listen(nursery)
                else:
                    await self._tidy()
                await self._changed.wait()

    async def _renew(self, due: dict[str, dict[SessionKey, Peer]]) -> None:
        """Renew the subscriptions in `due`, which sessions had at an earlier instance."""
        async with trio.open_nursery() as nursery:
            for uri, peers in due.items():
                for peer in peers.values():
                    nursery.start_soon(self._renew_one, uri, peer)

    async def _renew_one(self, uri: str, peer: Peer) -> None:
        if peer.session not in self._server_connection.holders:
            return
        try:
            await self.subscribe(uri, peer)
        except _UNANSWERED as error:
            self._server_connection.log.info("not_renewed", session=peer.session, reason=str(error))
            return
        if peer.session in self._messages.subscribers.get(uri, {}):
            peer.tell("notifications/resources/updated", joined({"uri": raw(uri)}))

    # Handshake generation

    async def _tidy(self) -> None:
        """Unsubscribe from resources that no session wants any more, and set the log level."""
        for uri in sorted(self._unsure - self._messages.subscribers.keys()):
            with suppress(*_UNANSWERED):
                async with self._lock:
                    await self._unsubscribe_last(uri)
        with suppress(*_UNANSWERED):
            await self.follow_level()

    async def _unsubscribe_last(self, uri: str) -> bytes:
        # Another session may have subscribed while this one waited for the lock.
        if uri in self._messages.subscribers or uri not in self._unsure:
            return b"{}"
        self._unsure.discard(uri)
        self._subscribed.discard(uri)
        return await self._ask("resources/unsubscribe", uri)

    async def _ask(self, method: str, uri: str) -> bytes:
        return await self._server_connection.ask(method, {"uri": raw(uri)}, ASK_TIMEOUT)

    # Stateless generation

    async def _wait_for_stream(self, member: str, wanted: str) -> bytes:
        """Wait until a stream is open whose filter has `wanted` in the member `member`.

        Return an empty result object in JSON. If the server refuses a new stream, its error is
        raised.
        """
        before = self._newest
        self._changed.set()
        while True:
            newest = self._newest
            if newest is not None and newest.carries(member, wanted) and newest.is_tried:
                if newest.error is None:
                    return b"{}"
                if newest is not before:
                    raise newest.error
            await self._attempted.wait()

    async def _listen(self, nursery: trio.Nursery) -> None:
        """Open a stream for everything that sessions want now, and then close the previous one."""
        wanted = self._wanted()
        if self._open is not None and self._open.wanted == wanted:
            self._newest = self._open
            return
        if self._newest is not None and self._newest.wanted == wanted:
            return
        self._newest = new = _Stream(wanted, self._server_connection.client)
        if wanted:
            nursery.start_soon(self._stay_on, new)
            with trio.move_on_after(ACKNOWLEDGE_PATIENCE):
                await new.opened.wait()
        new.is_tried = True
        if new.error is None:
            if self._open is not None:
                self._open.scope.cancel()
            self._open = new
        attempted, self._attempted = self._attempted, trio.Event()
        attempted.set()

    def _wanted(self) -> dict[str, object]:
        wanted: dict[str, object] = {}
        for kind in _KINDS:
            offered = members_or_none(bytes(self._server_connection.capabilities.get(kind, b"")))
            if bytes(offered.get("listChanged", b"")) == b"true":
                wanted[f"{kind}ListChanged"] = True
        if self._messages.subscribers:
            wanted["resourceSubscriptions"] = sorted(self._messages.subscribers)
        if self._messages.watchers:
            wanted["taskIds"] = sorted(self._messages.watchers)
        return wanted

    async def _stay_on(self, stream: "_Stream") -> None:
        """Send the stream's request, and wait until the stream has ended.

        Then have another one opened, unless the server answered with an error.
        """
        members = {"notifications": raw(stream.wanted)}
        with stream.scope:
            try:
                await self._server_connection.relay(
                    "subscriptions/listen", members, stream, timeout=_FOREVER
                )
                stream.on_ended(ServerError(_ENDED_AT_ONCE))
            except _UNANSWERED as error:
                stream.on_ended(error)
            self._server_connection.log.info("stream_ended", reason=str(stream.error or ""))
            if isinstance(stream.error, ServerError):
                return
            await trio.sleep(LISTEN_AGAIN)
            if stream in (self._open, self._newest):
                self._open = self._newest = None
                self._changed.set()

    def _forget(self, uri: str, session: SessionKey) -> bool:
        """Remove a session's subscription to `uri`; return whether it was the last one."""
        subscribers = self._messages.subscribers.get(uri)
        if subscribers is None or subscribers.pop(session, None) is None or subscribers:
            return False
        del self._messages.subscribers[uri]
        return True


class _Stream:
    """One `subscriptions/listen`. It is the `Caller` of its own request."""

    session = NOBODY
    log_level = ""

    def __init__(self, wanted: Mapping[str, object], client: ClientFacts) -> None:
        self.client = with_tasks(client) if "taskIds" in wanted else client
        self.wanted = wanted
        self.tasks: frozenset[str] = frozenset()
        """The tasks whose changes the server has agreed to announce."""
        self.scope = trio.CancelScope()
        self.is_tried = False
        """Whether the attempt to open it is over."""
        self.opened = trio.Event()
        """Set when the stream is open, or has failed to open."""
        self.error: Exception | None = None
        """Why the stream could not be opened; None if it could, or if that is not known yet."""

    def carries(self, member: str, wanted: str) -> bool:
        """Tell whether the filter of the stream has `wanted` in its member `member`."""
        found = self.wanted.get(member)
        return isinstance(found, list) and wanted in found

    def on_ended(self, error: Exception) -> None:
        """Note the end of the stream. It is an error only if the stream was never open."""
        if not self.opened.is_set():
            self.error = error
            self.opened.set()

    async def dispatched(self) -> None:
        """Do nothing: the request is capd's own, so no client is told that it may run."""

    def progress(self, params: bytes) -> None:
        """Do nothing: nobody waits for the progress of a stream."""

    async def ask(self, method: str, params: bytes, on_progress: OnProgress) -> bytes:
        """Raise RefusedError, because there is nobody to ask."""
        del params, on_progress
        raise RefusedError(f"nobody can be asked {method} here")

    def tell(self, method: str, params: bytes) -> None:
        """Receive the acknowledgement of the stream. `ServerMessages` delivers the updates."""
        if method == ACKNOWLEDGED:
            if "taskIds" in self.wanted:
                with suppress(MalformedError):
                    self.tasks = frozenset(AGREED.decode(params).notifications.task_ids)
            self.opened.set()
