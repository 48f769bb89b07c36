"""One client's MCP connection: reads its lines, writes answers and notifications.

This module handles JSON-RPC, both protocol generations and the frames of capd's own protocol. The
session answers requests (`Conversation`). Requests run concurrently, and none is answered twice.
A request gets no answer if the client cancels it, or will send it to the next daemon. Params and
results that are only passed on are not decoded. A malformed line does not end the connection. A
connection whose client is idle has no task (`parking`).
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

import msgspec
import trio
from structlog.typing import FilteringBoundLogger

from capd.adapters.clients.answer_lines import (
    FAILURES,
    NoMethodError,
    error_line,
    failed_line,
    failure_line,
    result_line,
    unreadable_line,
)
from capd.adapters.clients.client_call import ClientCall
from capd.adapters.clients.client_connection import ClientConnection
from capd.adapters.clients.client_lines import (
    CANCELLED,
    INITIALIZE,
    LEVEL,
    LINE,
    LINK,
    LIST,
    TURN,
    URI,
    Line,
)
from capd.adapters.clients.conversation import (
    HANDSHAKE_ONLY,
    LISTS,
    RELAYED,
    Conversation,
    Request,
    listing,
)
from capd.adapters.clients.line_sinks import LargeSink, LineSink, RequestId
from capd.adapters.clients.listening import Listening
from capd.adapters.clients.parking import ParkableConnection, Phase
from capd.adapters.clients.questions import Questions
from capd.adapters.clients.requests_in_flight import MOST_REQUESTS, RequestsInFlight
from capd.adapters.clients.suspended import SuspendedCalls
from capd.adapters.frame_writer import FrameCutError, WriterFullError
from capd.adapters.large_frames import LargeFrame, read_all
from capd.adapters.line_texts import checked_text, recover_id
from capd.adapters.servers.callers import OnProgress
from capd.adapters.stdio_frames import Frame, FrameReader, FrameStalledError, Oversized
from capd.adapters.step_boundary import boundary
from capd.core.back_references import weakly
from capd.core.errors import described
from capd.core.protocol import generations
from capd.core.protocol.far_roots import capabilities_without_roots
from capd.core.protocol.handshake import agreed_version, discover_result, initialize_result
from capd.core.protocol.outcomes import CallFailedError, RefusedError, failed_result
from capd.core.protocol.resource_uris import is_within
from capd.core.protocol.tasks import has_tasks
from capd.core.results.half_pairs import decoded
from capd.core.results.large_results import Result
from capd_protos import socket as frames
from capd_protos.codec import MalformedError

_NOTHING: frozenset[int | str | float] = frozenset()
_NULL = msgspec.Raw(b"null")


class Upstream(ParkableConnection):
    """One client's MCP connection; `run` it in a task of its own.

    The hello says whether the client gets the frames `dispatched` (`wants_dispatched`) and
    `durable` (`knows_durable`), and which requests it will repeat (`again`). `version` is capd's
    own.
    """

    __slots__ = (
        *("_large_sink", "_log", "_nursery", "_under_way", "_version"),
        *("_made_listening", "_made_questions", "_made_suspended"),
        *("again", "client", "connection", "knows_durable", "session", "wants_dispatched"),
        *("is_draining", "is_goodbye"),
    )

    def __init__(
        self,
        sink: LineSink,
        lines: AsyncIterator[Frame | Oversized],
        *,
        connection: ClientConnection,
        wants_dispatched: bool,
        version: str,
        log: FilteringBoundLogger,
        knows_durable: bool = False,
        again: Iterable[int | str | float] = (),
    ) -> None:
        super().__init__(sink, lines)
        self.is_goodbye = False
        """Whether the client ended its session on purpose."""
        self.is_draining = False
        """Whether new requests are refused or ignored, because the daemon stops."""
        self.connection = connection
        """What the client sent on this connection or an earlier one of its session."""
        self.session = connection.session
        self.wants_dispatched = wants_dispatched
        self.knows_durable = knows_durable
        self.again = frozenset(again) or _NOTHING
        self._large_sink = sink if isinstance(sink, LargeSink) else None
        self._version = version
        self._log = log
        self.client = connection.client
        """The client info for requests that do not contain their own."""
        # Most clients are never asked, suspend nothing and have no streams.
        self._made_questions: Questions | None = None
        self._made_suspended: SuspendedCalls | None = None
        self._made_listening: Listening | None = None

    @property
    def _questions(self) -> Questions:
        if self._made_questions is None:
            self._made_questions = Questions()
        return self._made_questions

    @property
    def _suspended(self) -> SuspendedCalls:
        if self._made_suspended is None:
            self._made_suspended = SuspendedCalls()
        return self._made_suspended

    @property
    def _listening(self) -> Listening:
        if self._made_listening is None:
            subscriptions = self.connection.subscriptions
            self._made_listening = Listening(weakly(self.notify), subscriptions)
        return self._made_listening

    async def run(self, conversation: Conversation) -> None:
        """Serve until the client disconnects or says goodbye, or until `close` is called.

        Return with `is_idle` set if the connection is still open, but has nothing to do. The caller
        then has to call `park`, and `run` again when `park` calls back.
        """
        assert self._scope is not None, "a parked connection is woken before it is run"
        has_left = False
        with self._scope:
            try:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    self._sink.open(nursery, self._scope.cancel)
                    self._under_way = RequestsInFlight(
                        self._sink,
                        nursery,
                        conversation,
                        weakly(self._answer_line),
                        wants_dispatched=self.wants_dispatched,
                    )
                    try:
                        await self._start(conversation)
                        await self._read(conversation)
                    except FrameStalledError:
                        self._log.info("client_stalled", session=self.session)
                    finally:
                        if self._phase is not Phase.LEAVING:
                            self._phase = Phase.OVER
                        self._under_way.cancel_all()
                    if self._phase is Phase.OVER:
                        nursery.cancel_scope.cancel()
                # Other tasks ran while the nursery closed, and may have closed the connection.
                has_left = self._phase is Phase.LEAVING
            finally:
                if not has_left:
                    self._phase = Phase.OVER
                    self._fail_questions()
                    with trio.move_on_after(1.0, shield=True):
                        await self._sink.aclose()

    @property
    def _is_occupied(self) -> bool:
        return (
            # Both are checked: a notification stream has a task and does not count as busy, and a
            # direct call counts as busy and has no task.
            bool(self._nursery.child_tasks)
            or self._under_way.is_busy
            or (self._made_questions is not None and self._made_questions.are_open)
            # A bridge that ends closes its clients' sockets, which the shared epoll object does not
            # report.
            or self.connection.is_far
        )

    def _drop_task_parts(self) -> None:
        # A stream is a request in progress, so at this point there are no streams.
        self._made_listening = None
        del self._under_way, self._nursery

    def _fail_questions(self) -> None:
        self._questions.close()

    @property
    def is_busy(self) -> bool:
        """Whether requests of the client are in progress."""
        # A connection that has just been woken has no task yet, and so no requests.
        return not self.is_idle and hasattr(self, "_under_way") and self._under_way.is_busy

    def close(self, reason: str, *, reconnect: bool) -> None:
        """Send the client the reason, and close the connection.

        With `reconnect`, the client is asked to connect again.
        """
        self.wake()
        if self._phase is not Phase.OVER:
            self._phase = Phase.CLOSING
        self._listening.close()
        self.post(msgspec.json.encode(frames.Closing(reason, reconnect)))
        if self._scope is not None:
            # The writer gets its turn before the cancellation arrives.
            self._scope.deadline = trio.current_time() + 0.2

    def list_changed(self, what: str) -> None:
        """Notify the client that its list of `tools`, `prompts` or `resources` has changed."""
        method = f"notifications/{what}/list_changed"
        if self.connection.is_initialized:
            self.post(b'{"jsonrpc":"2.0","method":"%s"}' % method.encode())
        if self._made_listening is not None:
            self._made_listening.list_changed(what)

    def resource_updated(self, uri: str, params: bytes) -> None:
        """Notify the client that the resource `uri` has changed, once for each subscription."""
        if any(is_within(uri, each) for each in self.connection.subscriptions):
            self.notify("notifications/resources/updated", params)
        if self._made_listening is not None:
            self._made_listening.resource_updated(uri, params)

    def task_changed(self, task: str, params: bytes) -> None:
        """Notify the client that a task has changed, once for each stream that listens for it."""
        self._listening.task_changed(task, params)

    def notify(self, method: str, params: bytes, related: RequestId = None) -> None:
        """Send the client a notification; `related` is the id of the request that it belongs to."""
        member = b',"params":' + params if params else b""
        name = msgspec.json.encode(method)
        self.post(b'{"jsonrpc":"2.0","method":%s%s}' % (name, member), related)

    async def ask(
        self, method: str, params: bytes, on_progress: OnProgress, related: RequestId = None
    ) -> bytes:
        """Send the client a server's request; return the result in the client's answer.

        Raises:
            ServerError: the client answered with an error.
            RefusedError: the client cannot be asked, or did not answer.
            MalformedError: the params are not an object.
        """
        if not self.connection.is_initialized:
            raise RefusedError(f"the client cannot be asked {method} here")

        def write(line: bytes) -> None:
            try:
                self._sink.post(line, related)
            except WriterFullError:
                raise RefusedError("the client does not read at this moment") from None

        return await self._questions.ask(method, params, write, on_progress)

    def want_environment(self, keys: list[str]) -> None:
        """Ask the client for the values of the environment variables `keys`."""
        self.post(msgspec.json.encode(frames.WantEnv(keys)))

    async def send(self, line: bytes, related: RequestId = None) -> None:
        """Write a line to the client; `related` is the id of the request that it belongs to.

        Raises:
            WriterFullError, FrameCutError: the line cannot be written.
        """
        await self._sink.send(line, related)

    def post(self, line: bytes, related: RequestId = None) -> None:
        """Queue a line for the client; it is lost if the queue is full."""
        with suppress(WriterFullError):
            self._sink.post(line, related)

    async def _start(self, conversation: Conversation) -> None:
        """Wait briefly for texts that the answer to `initialize` should contain."""
        if self._phase is not Phase.NEW:
            return
        try:
            await conversation.start()
        except Exception as error:  # noqa: BLE001 - the boundary
            self._log_failure("start", error)
        if self._phase is Phase.NEW:
            self._phase = Phase.SERVED

    async def _renew_subscriptions(self, conversation: Conversation) -> None:
        try:
            await conversation.renew_subscriptions()
        except Exception as error:  # noqa: BLE001 - the boundary
            self._log_failure("subscriptions", error)

    async def _read(self, conversation: Conversation) -> None:
        """Handle lines until the client is gone, or until the connection leaves its task."""
        if not isinstance(self._lines, FrameReader):
            async for line in self._lines:
                self._on_lines([line], conversation)
                if self.is_goodbye:
                    break
            return
        while True:
            with trio.CancelScope() as self._reading:
                while not self.is_goodbye and (lines := await self._lines.some()):
                    if self._phase is Phase.QUIET:
                        self._phase = Phase.SERVED
                    self._on_lines(lines, conversation)
                    # Free a large line before waiting for the next one.
                    lines.clear()
                return
            # A line may have come after the look that found the connection idle.
            if self._leave_if_idle():
                return

    def _on_lines(self, lines: Sequence[Frame | Oversized], conversation: Conversation) -> None:
        for line in lines:
            self._on_line(line, conversation)
            if self.is_goodbye:
                return
        self._under_way.begin()

    def _log_failure(self, what: str, error: BaseException) -> None:
        self._log.error("task_failed", task=what[:100], session=self.session, **described(error))

    def _on_line(self, line: Frame | Oversized, conversation: Conversation) -> None:
        if isinstance(line, Oversized):
            limit = frames.LINE_LIMIT_BYTES
            text = f"a line of {line.size_bytes} bytes is over the limit of {limit}"
            self._error(recover_id(line.head), frames.INVALID_REQUEST, text)
            return
        if line.data.startswith(frames.LINK_PREFIX):
            with boundary("a link frame", log=self._log):
                self._on_link_frame(line.data, conversation)
            return
        try:
            message = decoded(LINE, checked_text(line.data))
        except MalformedError as error:
            request_id = recover_id(line.data)
            self.post(unreadable_line(request_id, line.data, str(error)), request_id)
            return
        if not message.method:
            with boundary("a response", log=self._log):
                self._on_reply(message)
        elif message.id is msgspec.UNSET:
            with boundary("a notification", log=self._log):
                self._on_notification(message, conversation)
        else:
            self._on_request(message)

    def _on_reply(self, message: Line) -> None:
        result, error = bytes(message.result), bytes(message.error)
        if self._questions.on_answer(message.id, result, error) or result or error:
            return
        if not isinstance(message.id, msgspec.UnsetType):
            # A request that names no method, or an empty one.
            self._error(message.id, frames.INVALID_REQUEST, "not a request: it names no method")

    def _on_request(self, message: Line) -> None:
        assert not isinstance(message.id, msgspec.UnsetType)
        if message.params == _NULL:
            # Some JSON-RPC libraries write that for a request without params.
            message.params = msgspec.Raw(b"")
        if self.is_draining:
            if not self.wants_dispatched:
                self._error(message.id, frames.NOT_SENT, "capd is stopping; ask again in a moment")
            # The client got no `dispatched` frame for this request, so it asks the next daemon.
            return
        if not self._under_way.add(message, ClientCall(self, message.id)):
            text = f"{MOST_REQUESTS} requests of this session are under way already"
            self._error(message.id, frames.REFUSED, text)

    def _on_link_frame(self, data: bytes, conversation: Conversation) -> None:
        try:
            frame = LINK.decode(data)
        except MalformedError:
            # Unknown kinds may come from newer clients, and are ignored (docs/protocol.md).
            self._log.info("link_frame_ignored", session=self.session)
            return
        if isinstance(frame, frames.EnvValues):
            conversation.on_environment(frame.env)
        elif isinstance(frame, frames.Goodbye):
            self.is_goodbye = True

    def _on_notification(self, message: Line, conversation: Conversation) -> None:
        match message.method:
            case "notifications/initialized":
                self.connection.is_initialized = True
                self._nursery.start_soon(self._renew_subscriptions, conversation)
            case "notifications/cancelled":
                with suppress(MalformedError):
                    self._under_way.cancel(CANCELLED.decode(message.params).requestId)
            case "notifications/progress":
                self._questions.on_progress(bytes(message.params))
            case "notifications/roots/list_changed":
                conversation.on_roots_changed()

    async def _answer_line(
        self, message: Line, request_id: RequestId, conversation: Conversation
    ) -> bytes | LargeFrame:
        """Return the response line of a request; an error in handling it becomes the response."""
        call = ClientCall(self, request_id)
        try:
            return await self._answer(message, call, conversation)
        except (WriterFullError, FrameCutError):
            # The client has gone.
            raise
        except Exception as error:  # noqa: BLE001 - the boundary
            self._log_failure(message.method, error)
            return failed_line(request_id, message.method, error, call.may_have_run)

    async def _answer(
        self, message: Line, call: ClientCall, conversation: Conversation
    ) -> bytes | LargeFrame:
        request_id = call.request_id
        stateless = False
        try:
            members: generations.Members = {}
            if message.method in RELAYED or generations.has_envelope(message.params):
                members = generations.members_of(message.params)
                stateless = call.read_meta(members, conversation)
            result = await self._result(message, members, call, conversation, stateless=stateless)
            if self._large_sink is None:
                result = await read_all(result)
        except CallFailedError as error:
            if message.method != "tools/call":
                return error_line(request_id, error.code, str(error))
            result = failed_result(error)
        except FAILURES as error:
            return failure_line(request_id, message.method, error)
        if stateless:
            result = generations.result_for_stateless(result, message.method)
        return result_line(request_id, result)

    async def _result(
        self,
        message: Line,
        members: generations.Members,
        call: ClientCall,
        conversation: Conversation,
        *,
        stateless: bool,
    ) -> Result:
        method = message.method
        if stateless and method in HANDSHAKE_ONLY:
            raise NoMethodError
        params = message.params if len(message.params) else msgspec.Raw(b"{}")
        if method in RELAYED:
            async with self._under_way.turnstile:
                return await self._relay(method, members, call, conversation, stateless=stateless)
        if method in LISTS:
            if LIST.decode(params).cursor:
                # Lists have one page, so that a list cannot change between two pages.
                raise generations.EnvelopeError(frames.INVALID_PARAMS, "no such cursor")
            entries = await conversation.list_entries(LISTS[method])
            return listing(method, entries)
        if method in HANDSHAKE_ONLY:
            return await self._handshake_result(method, params, conversation)
        match method:
            case "server/discover":
                await conversation.wait_ready()
                text = conversation.instructions()
                offered = conversation.extensions()
                return msgspec.json.encode(discover_result(self._version, text, offered))
            case "subscriptions/listen":
                return await self._listening.serve(
                    call.request_id, params, conversation, has_tasks=has_tasks(call.client)
                )
            case "ping" if not stateless:
                return b"{}"
            case "capd/turn":
                return await conversation.turn(TURN.decode(params).text)
            case _:
                raise NoMethodError

    async def _handshake_result(
        self, method: str, params: msgspec.Raw, conversation: Conversation
    ) -> bytes:
        match method:
            case "initialize":
                return await self._initialize(params, conversation)
            case "resources/subscribe":
                uri = URI.decode(params).uri
                result = await conversation.subscribe(uri)
                self.connection.subscriptions[uri] = None
                return result
            case "resources/unsubscribe":
                uri = URI.decode(params).uri
                self.connection.subscriptions.pop(uri, None)
                if self._listening.wants(uri):
                    return b"{}"
                return await conversation.unsubscribe(uri)
            case _:
                self.connection.log_level = LEVEL.decode(params).level
                await conversation.follow_level()
                return b"{}"

    async def _initialize(self, params: msgspec.Raw, conversation: Conversation) -> bytes:
        requested = INITIALIZE.decode(params)
        version = agreed_version(requested.protocolVersion)
        offered = bytes(requested.capabilities)
        if self.connection.is_far:
            offered = capabilities_without_roots(offered)
        self.client = generations.facts(version, bytes(requested.clientInfo), offered)
        conversation.on_client_info(self.client)
        await conversation.wait_ready()
        return msgspec.json.encode(
            initialize_result(
                requested.protocolVersion,
                self._version,
                conversation.instructions(),
                conversation.extensions(),
            )
        )

    async def _relay(
        self,
        method: str,
        members: generations.Members,
        call: ClientCall,
        conversation: Conversation,
        *,
        stateless: bool,
    ) -> Result:
        if not stateless:
            return await conversation.relay(Request(method, members, call))
        return await self._suspended.relay(
            Request(method, members, call), conversation, self._nursery
        )

    def _error(self, request_id: RequestId, code: int, text: str) -> None:
        self.post(error_line(request_id, code, text), request_id)
