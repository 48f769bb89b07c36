"""A connection's *direct* calls, which need no task of their own.

    prepared ──once its chunk of input is read────> begun ──reply, death, deadline──> over
       │                  │                           │
       │                  v                           v
       │          taken back: it gets a task of its own    cancelled: the server is told
       v
    cancelled: nothing was sent

Most calls are direct: the tool's server is running, the session has fewer calls in progress than it
may have, and no write is blocked. They keep the promise of every call (docs/design/outcomes.md):
before the server gets the first byte, the client is told that the call may run. The client gets
exactly one outcome.
"""

from collections.abc import Callable
from contextlib import suppress

import structlog
import trio

from capd.adapters.clients.answer_lines import answer_line, result_line
from capd.adapters.clients.client_call import ClientCall, dispatched_line
from capd.adapters.clients.conversation import Conversation, DirectRoute, Request
from capd.adapters.clients.line_sinks import PromptSink
from capd.adapters.frame_writer import FrameCutError, WriterFullError
from capd.adapters.large_frames import LargeFrame
from capd.adapters.servers.pending import Pending
from capd.adapters.servers.server_connection import IDLE_TIMEOUT, ServerConnection
from capd.adapters.step_boundary import boundary
from capd.core.errors import described
from capd.core.protocol import generations
from capd.core.protocol.outcomes import (
    CallFailedError,
    ServerError,
    failed_result,
    internal_failure,
)
from capd.core.results.large_results import Result
from capd_protos.codec import MalformedError

log = structlog.get_logger(actor="curator")


class DirectCall(Pending):
    """One call of a tool that needs no task of its own."""

    __slots__ = ("_calls", "request_id", "route", "take_back")

    def __init__(
        self,
        calls: "DirectCalls",
        caller: ClientCall,
        route: DirectRoute,
        take_back: Callable[[], None],
    ) -> None:
        """Create the call of `caller`, which takes `route` to its server.

        `take_back` has the call answered by a task of its own instead.
        """
        super().__init__("tools/call", caller, route.timeout or IDLE_TIMEOUT)
        self.request_id = caller.request_id
        self.route = route
        self.take_back = take_back
        self._calls = calls

    def cancel(self) -> None:
        """Cancel the call without an answer, unless its outcome is known already."""
        if not self.is_done:
            self.is_done = True
            self._calls.on_cancelled(self)

    def on_outcome(self) -> None:
        """Answer the client with the outcome, which is in `result` or `error`."""
        self._calls.on_outcome(self)


class DirectCalls:
    """The calls of one connection that need no task of their own."""

    def __init__(
        self,
        sink: PromptSink,
        nursery: trio.Nursery,
        turnstile: trio.Semaphore,
        on_over: Callable[[DirectCall], None],
        *,
        wants_dispatched: bool,
    ) -> None:
        """Create an empty set of calls, whose answers are written to `sink`.

        Tasks in `nursery` write what cannot be written at once. `on_over` is called for each call
        that has ended, or was taken back. `turnstile` limits how many calls of the session run at a
        time. With `wants_dispatched`, the client is told of each call before the server gets it.
        """
        self._sink = sink
        self._nursery = nursery
        self._turnstile = turnstile
        self._on_over = on_over
        self._wants_dispatched = wants_dispatched
        self._prepared: list[DirectCall] = []
        # A set, because two calls may have the same id.
        self._open: set[DirectCall] = set()

    def prepare(
        self,
        caller: ClientCall,
        params: bytes,
        conversation: Conversation,
        take_back: Callable[[], None],
    ) -> DirectCall | None:
        """Return a call that the next `begin` writes; None if it needs a task of its own.

        `caller` is the client behind the call, and `params` are its params as JSON. `take_back`
        starts such a task if `begin` cannot write the call at once.
        """
        # A stateless call may return a question of its server, so it needs a task.
        if not self._turnstile.value or generations.has_envelope(params):
            return None
        try:
            members = generations.members_of(params)
            caller.read_meta(members, conversation)
        except (MalformedError, generations.EnvelopeError):
            return None
        route = conversation.direct_route(Request("tools/call", members, caller))
        if route is None:
            return None
        self._turnstile.acquire_nowait()
        call = DirectCall(self, caller, route, take_back)
        self._prepared.append(call)
        self._open.add(call)
        return call

    def begin(self) -> None:
        """Write the prepared calls to their servers.

        Calls that cannot be written at once are taken back: each gets a task of its own.
        """
        calls, self._prepared = self._prepared, []
        if not calls:
            return
        if self._wants_dispatched and not self._sink.is_out([_dispatched(each) for each in calls]):
            self._take_back(calls)
            return
        by_connection: dict[ServerConnection, list[DirectCall]] = {}
        for call in calls:
            by_connection.setdefault(call.route.server_connection, []).append(call)
        for server_connection, group in by_connection.items():
            try:
                begun = server_connection.begin(group, [each.route.members for each in group])
            except Exception as error:  # noqa: BLE001 - the boundary
                log.error("task_failed", task="direct calls", **described(error))
                for each in group:
                    each.complete(error=internal_failure(error, was_sent=True))
            else:
                self._take_back(group[begun:])

    def on_outcome(self, call: DirectCall) -> None:
        """Answer a call whose outcome is known. This runs in the task that reads from the server.

        An error here must end this call only, and neither the server nor its other sessions.
        """
        try:
            self._act_on_outcome(call)
        except Exception as error:  # noqa: BLE001 - the boundary
            log.error("task_failed", task="direct call", **described(error))
            with boundary("answer", log=log):
                # capd failed to process the result, so send it as the server wrote it.
                self._nursery.start_soon(self._deliver, call, _answer(call))

    def _act_on_outcome(self, call: DirectCall) -> None:
        self._leave(call)
        if call.result is not None and not call.route.is_unchanged(call.result):
            self._nursery.start_soon(self._finish, call, call.result)
            return
        answer = _answer(call)
        if isinstance(answer, bytes) and self._sink.put(answer):
            self._over(call)
        else:
            self._nursery.start_soon(self._deliver, call, answer)

    def cancel_all(self) -> None:
        """Cancel all calls without an answer, because the client has disconnected."""
        for call in list(self._open):
            call.cancel()

    def on_cancelled(self, call: DirectCall) -> None:
        """End a call that the client has cancelled; tell the server if it was written."""
        was_begun = call not in self._prepared
        if was_begun:
            call.route.server_connection.abandon(call)
        else:
            self._prepared.remove(call)
        self._leave(call, has_ended=was_begun)
        self._over(call)

    def _take_back(self, calls: list[DirectCall]) -> None:
        for call in calls:
            self._leave(call, has_ended=False)
            self._over(call)
            call.take_back()

    async def _finish(self, call: DirectCall, result: Result) -> None:
        """Answer a call whose result has to be changed for the client, such as a long one."""
        try:
            passed = await call.route.passed(result)
        except Exception as error:  # noqa: BLE001 - the boundary
            log.error("task_failed", task="direct call", **described(error))
            passed = result
        await self._deliver(call, result_line(call.request_id, passed))

    async def _deliver(self, call: DirectCall, answer: bytes | LargeFrame) -> None:
        try:
            with suppress(WriterFullError, FrameCutError):
                if isinstance(answer, bytes):
                    await self._sink.send(answer)
                else:
                    await self._sink.send_large(answer)
        finally:
            self._over(call)

    def _leave(self, call: DirectCall, *, has_ended: bool = True) -> None:
        is_left = False
        # Every direct call comes here, and a `try` is faster than `boundary`.
        try:
            is_left = call.route.leave(call.result, call.error, has_ended=has_ended)
        except Exception as error:  # noqa: BLE001 - the boundary
            log.error("task_failed", task="direct call", **described(error))
        if is_left:
            self._nursery.start_soon(self._release, call)

    async def _release(self, call: DirectCall) -> None:
        try:
            await call.route.release()
        except Exception as error:  # noqa: BLE001 - the boundary
            log.error("task_failed", task="release", **described(error))

    def _over(self, call: DirectCall) -> None:
        self._open.discard(call)
        self._turnstile.release()
        self._on_over(call)


def _dispatched(call: DirectCall) -> bytes:
    assert call.request_id is not None
    return dispatched_line(call.request_id)


def _answer(call: DirectCall) -> bytes | LargeFrame:
    """Return the response line of a call whose outcome is known."""
    if isinstance(call.error, ServerError):
        return answer_line(call.request_id, b'"error":', call.error.error)
    if isinstance(call.error, CallFailedError):
        return answer_line(call.request_id, b'"result":', failed_result(call.error))
    if call.error is not None:
        failure = internal_failure(call.error, was_sent=True)
        return answer_line(call.request_id, b'"result":', failed_result(failure))
    assert call.result is not None
    return result_line(call.request_id, call.result)
