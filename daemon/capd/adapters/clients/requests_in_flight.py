"""A connection's requests in progress: counted, found by id, each answered once or cancelled."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import structlog
import trio

from capd.adapters.clients.client_call import ClientCall
from capd.adapters.clients.client_lines import Line
from capd.adapters.clients.conversation import Conversation
from capd.adapters.clients.direct_calls import DirectCall, DirectCalls
from capd.adapters.clients.line_sinks import LargeSink, LineSink, PromptSink, RequestId
from capd.adapters.frame_writer import FrameCutError, WriterFullError
from capd.adapters.large_frames import LargeFrame
from capd.adapters.tracing import TRACES, failure_in
from capd.core.errors import described

if TYPE_CHECKING:
    from opentelemetry.trace import Span

MOST_REQUESTS = 96
"""Requests of one session in progress at a time, of which `AT_ONCE` run."""
AT_ONCE = 32
_LISTEN = "subscriptions/listen"
"""This request may stay open for as long as the client likes, so it is not counted."""


log = structlog.get_logger(actor="curator")


class RequestsInFlight:
    """Starts, finds, cancels and counts the requests of one connection."""

    def __init__(
        self,
        sink: LineSink,
        nursery: trio.Nursery,
        conversation: Conversation,
        answer: Callable[[Line, RequestId, Conversation], Awaitable[bytes | LargeFrame]],
        *,
        wants_dispatched: bool,
    ) -> None:
        """Create an empty set of requests, whose tasks run in `nursery`.

        `answer` handles one request and returns the response line, which is written to `sink`. With
        `wants_dispatched`, the client is told of each call before the server gets it.
        """
        self._turnstile: trio.Semaphore | None = None
        self._sink = sink
        self._nursery = nursery
        self._conversation = conversation
        self._answer_line = answer
        self._ends: dict[RequestId, trio.CancelScope | DirectCall] = {}
        self._running = 0
        self._wants_dispatched = wants_dispatched
        self._direct: DirectCalls | None = None
        # The spans of direct calls; empty if traces are off.
        self._spans: dict[DirectCall, Span] = {}

    @property
    def is_busy(self) -> bool:
        """Whether the client waits for an answer."""
        return self._running > 0

    @property
    def turnstile(self) -> trio.Semaphore:
        """A semaphore that limits how many calls of the session run at a time."""
        if self._turnstile is None:
            self._turnstile = trio.Semaphore(AT_ONCE)
        return self._turnstile

    def add(self, message: Line, caller: ClientCall) -> bool:
        """Start answering a request; return False if too many are in progress.

        A call that needs no task of its own waits for the next `begin`.
        """
        # The requests themselves are counted, because two with the same id are one entry in the
        # table.
        if self._running >= MOST_REQUESTS and message.method != _LISTEN:
            return False
        is_call = message.method == "tools/call" and caller.request_id is not None
        if is_call and self._direct is None and isinstance(self._sink, PromptSink):
            # Created with the first call, because most sessions are idle.
            self._direct = DirectCalls(
                self._sink,
                self._nursery,
                self.turnstile,
                self._over,
                wants_dispatched=self._wants_dispatched,
            )
        if is_call and self._direct is not None:
            take_back = partial(self._start, message, caller.request_id, caller.session)
            params = bytes(message.params)
            try:
                direct = self._direct.prepare(caller, params, self._conversation, take_back)
            except Exception as error:  # noqa: BLE001 - the boundary
                # The request then gets a task of its own, which gives it an outcome.
                log.error("task_failed", task="direct call", **described(error))
                direct = None
            if direct is not None:
                self._running += 1
                self._ends[caller.request_id] = direct
                if TRACES.is_on:
                    span = TRACES.begin(message.method, params, caller.session)
                    self._spans |= {direct: span} if span is not None else {}
                return True
        self._start(message, caller.request_id, caller.session)
        return True

    def begin(self) -> None:
        """Send the added calls that need no task of their own (`direct_calls`).

        Call this when every request in the same chunk of input has been added.
        """
        if self._direct is not None:
            self._direct.begin()

    def cancel(self, request_id: RequestId) -> None:
        """End a request without an answer (MCP, "Cancellation")."""
        end = self._ends.get(request_id)
        if end is not None:
            end.cancel()

    def cancel_all(self) -> None:
        """End every request, because the client has disconnected."""
        for end in list(self._ends.values()):
            end.cancel()
        if self._direct is not None:
            self._direct.cancel_all()
            # Break the reference cycle between this object and its direct calls.
            self._direct = None

    def _over(self, call: DirectCall) -> None:
        self._running -= 1
        if self._ends.get(call.request_id) is call:
            del self._ends[call.request_id]
        span = self._spans.pop(call, None) if self._spans else None
        # A call that was taken back has no outcome here; its task has a span of its own.
        if span is not None and call.is_done:
            is_over = call.result is not None or call.error is not None
            failed = "error" if call.error is not None else ""
            TRACES.end(span, failed=failed if is_over else "cancelled")

    def _start(self, message: Line, request_id: RequestId, session: str) -> None:
        self._running += message.method != _LISTEN
        # Created here and not in the task, because the next line may cancel it.
        scope = self._ends[request_id] = trio.CancelScope()
        span = TRACES.begin(message.method, bytes(message.params), session)
        self._nursery.start_soon(self._answer, message, request_id, scope, span)

    async def _answer(
        self,
        message: Line,
        request_id: RequestId,
        scope: trio.CancelScope,
        span: "Span | None",
    ) -> None:
        failed = "cancelled"
        # `except*`, because a task that ends while it is cancelled may raise both exceptions in one
        # group.
        try:
            with scope, suppress(WriterFullError, FrameCutError):
                await trio.lowlevel.checkpoint_if_cancelled()
                answer = await self._answer_line(message, request_id, self._conversation)
                if span is not None:
                    failed = failure_in(answer) if isinstance(answer, bytes) else ""
                if isinstance(answer, bytes):
                    await self._sink.send(answer, request_id)
                elif isinstance(self._sink, LargeSink):
                    await self._sink.send_large(answer)
        except* Exception as errors:  # noqa: BLE001 - the boundary
            log.error("task_failed", task=message.method[:100], **described(errors))
        finally:
            self._running -= message.method != _LISTEN
            if self._ends.get(request_id) is scope:
                del self._ends[request_id]
            if span is not None:
                TRACES.end(span, failed=failed)
