"""The notifications that one connection wants: its streams, and its subscriptions.

A stream (`subscriptions/listen`, stateless generation) is a request whose answer is the end of the
stream. First the request is acknowledged. Then the stream carries only what the client asked for,
and every line names the stream.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

import msgspec
import trio

from capd.adapters.clients.client_lines import LISTEN, Filter
from capd.adapters.clients.conversation import Conversation, UnknownNameError
from capd.adapters.clients.line_sinks import RequestId
from capd.core.protocol import generations
from capd.core.protocol.outcomes import CallFailedError, RefusedError, ServerError
from capd.core.protocol.resource_uris import is_within
from capd.core.protocol.tasks import CHANGED, REQUIRED
from capd_protos.codec import MalformedError

MOST_STREAMS = 32
"""The most streams of one connection at a time."""


Notify = Callable[[str, bytes, RequestId], None]

_NOT_SUBSCRIBED = (ServerError, CallFailedError, UnknownNameError)


class Listening:
    """The notification streams of one connection."""

    def __init__(self, notify: Notify, subscriptions: Collection[str]) -> None:
        """Start without streams; `notify` queues a notification for the client.

        `subscriptions` are the resources that the client subscribed to outside of streams.
        """
        self._notify = notify
        self._subscriptions = subscriptions
        self._streams: dict[RequestId, Filter] = {}
        self._opening: dict[RequestId, dict[str, list[bytes]]] = {}
        """Notifications of tasks that came while a stream was being opened. The outer key is the
        stream's request id, the inner key a task's id, and each value the params of notifications.
        """
        self._closing: trio.Event | None = None
        self._is_closed = False

    def close(self) -> None:
        """End every stream with the result that MCP defines for the end of a stream."""
        self._is_closed = True
        if self._closing is not None:
            self._closing.set()

    def list_changed(self, what: str) -> None:
        """Notify the streams that want changes of the list `what`."""
        for stream, wanted in self._streams.items():
            if getattr(wanted, f"{what}_list_changed"):
                self._tell(stream, f"notifications/{what}/list_changed", b"{}")

    def resource_updated(self, uri: str, params: bytes) -> None:
        """Notify the streams that want changes of the resource `uri`.

        `params` are the params of the server's notification.
        """
        for stream, wanted in self._streams.items():
            if any(is_within(uri, each) for each in wanted.resource_subscriptions):
                self._tell(stream, "notifications/resources/updated", params)

    def task_changed(self, task: str, params: bytes) -> None:
        """Notify the streams that listen for the task with the id `task`."""
        for stream, wanted in self._streams.items():
            if task in wanted.task_ids:
                self._tell(stream, CHANGED, params)
        for opening in self._opening.values():
            if task in opening:
                # Each notification has the whole state of the task, so only the newest is kept.
                opening[task] = [params]

    async def serve(
        self,
        request_id: RequestId,
        params: msgspec.Raw,
        conversation: Conversation,
        *,
        has_tasks: bool = False,
    ) -> bytes:
        """Serve the stream that a request opens, until it is cancelled or the connection closes.

        Return the request's result. `has_tasks` says whether the client has the extension with
        tasks.

        Raises:
            EnvelopeError: the request lists tasks, but the client lacks that extension.
            MalformedError: the request has no id, or its params are invalid.
            RefusedError: too many streams are open.
        """
        if request_id is None:
            raise MalformedError("a stream of notifications needs an id")
        if len(self._streams) >= MOST_STREAMS:
            raise RefusedError(f"{MOST_STREAMS} streams of this connection are open already")
        wanted = LISTEN.decode(params).notifications
        if wanted.task_ids and not has_tasks:
            text = "Missing required client capability"
            raise generations.EnvelopeError(generations.MISSING_CAPABILITY, text, REQUIRED)
        uris: list[str] = []
        tasks = self._opening[request_id] = {}
        try:
            for uri in dict.fromkeys(wanted.resource_subscriptions):
                uris.append(uri)
                # A URI that no server has is acknowledged too; it just gets no updates.
                with suppress(*_NOT_SUBSCRIBED):
                    await conversation.subscribe(uri)
            await _watch(tasks, wanted.task_ids, conversation)
            wanted = msgspec.structs.replace(wanted, task_ids=list(tasks))
            acknowledged = generations.joined({"notifications": generations.raw(wanted)})
            self._tell(request_id, "notifications/subscriptions/acknowledged", acknowledged)
            self._streams[request_id] = wanted
            del self._opening[request_id]
            for early in (each for found in tasks.values() for each in found):
                self._tell(request_id, CHANGED, early)
            if not self._is_closed:
                if self._closing is None:
                    self._closing = trio.Event()
                await self._closing.wait()
        finally:
            self._streams.pop(request_id, None)
            self._opening.pop(request_id, None)
            with trio.move_on_after(1.0, shield=True):
                for uri in uris:
                    if not self.wants(uri) and uri not in self._subscriptions:
                        with suppress(*_NOT_SUBSCRIBED):
                            await conversation.unsubscribe(uri)
            others = {task for each in self._streams.values() for task in each.task_ids}
            for task in tasks.keys() - others:
                conversation.unwatch_task(task)
        meta = {generations.SUBSCRIPTION_ID: request_id}
        return msgspec.json.encode({"resultType": "complete", "_meta": meta})

    def wants(self, uri: str) -> bool:
        """Tell whether a stream of the client wants changes of the resource `uri`."""
        return any(uri in each.resource_subscriptions for each in self._streams.values())

    def _tell(self, stream: RequestId, method: str, params: bytes) -> None:
        assert stream is not None
        self._notify(method, generations.with_subscription(params, stream), stream)


async def _watch(
    tasks: dict[str, list[bytes]], wanted: Sequence[str], conversation: Conversation
) -> None:
    """Listen at servers for changes of the tasks `wanted`.

    A task is put into `tasks` if its server announces changes.
    """
    for task in dict.fromkeys(wanted):
        tasks[task] = []
        state = None
        with suppress(*_NOT_SUBSCRIBED):
            state = await conversation.watch_task(task)
        if state is None:
            del tasks[task]
        elif state and not tasks[task]:
            # The task may have changed while the client had no stream, for example while the
            # daemon was replaced.
            tasks[task] = [state]
