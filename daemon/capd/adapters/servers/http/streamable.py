"""The streamable HTTP transport: each message is a POST, whose response contains the answer.

    POST a request ──200 JSON────────────────────────> its reply
           ├──200 events: notifications, requests, its reply ──> each, until the reply
           │      └── cut before the reply: GET with the last event's id, if it had one
           ├──202, 5xx, cut off ─────────────────────> `outcome_unknown`: it may have run
           ├──never connected ───────────────────────> `not_sent`
           ├──401, or 403 before anything worked ────> lost, and parked: a person must log in
           └──404 in a session ──────────────────────> lost: the session has expired

A handshake server may also send messages in answer to a separate GET, which capd sends after
`initialized`, and again whenever its stream ends. No message is sent twice, unless the server
refused it: with 401, or because it speaks only the older transport.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import msgspec
import trio

from capd.adapters.servers.http.event_stream import Event, EventParser, fed_in_turns
from capd.adapters.servers.http.guarded_client import (
    Answer,
    Dispatch,
    ServerRequest,
    answered,
)
from capd.adapters.servers.http.large_bodies import LargeBodies, LargeBody
from capd.adapters.servers.http.login_record import LoginNeededError
from capd.adapters.servers.http.remote_link import ConnectionLoss, RemoteLink
from capd.adapters.servers.http.request_headers import RequestHeaders, modern_version
from capd.adapters.servers.http.wire_messages import (
    MessageId,
    error_of,
    error_reply,
    failure_reply,
    is_reply,
    is_same_id,
    lines_of,
    status_reply,
)
from capd.adapters.servers.server_lines import INCOMING, Incoming, with_halves
from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
)
from capd.core.results.line_ends import line_ends
from capd.core.servers.stream_pauses import StreamPauses
from capd_protos.codec import JsonCodec, MalformedError

NOTICE_TIMEOUT = 20.0
CANCEL_GRACE = 10.0
"""Seconds to wait for the answer to a cancelled request, in the handshake generation."""
MOST_FAILED_RESUMPTIONS = 2
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 300.0
ERROR_BODY_CAP_BYTES = 1 << 20
_DECODED_BYTES = 16 << 20
"""Of a longer line only the two ends are read: decoding all of it would hold up the event loop."""
_END_BYTES = 4 * 1024
_ACCEPT = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
}
_SESSION = "mcp-session-id"
_CHALLENGE = "www-authenticate"
_OLD_TRANSPORT_STATUSES = {400, 404, 405}
_OK, _ACCEPTED, _BAD_REQUEST, _FORBIDDEN, _NOT_FOUND, _FAULT = 200, 202, 400, 403, 404, 500
_SESSION_ENDED = "has ended this session (HTTP status 404)"


FallBack = Callable[[Incoming, bytes], Awaitable[bool]]


class _Cancelled(msgspec.Struct):
    message_id: MessageId = msgspec.field(name="requestId", default=None)


_CANCELLED: JsonCodec[_Cancelled] = JsonCodec(_Cancelled)


@dataclass(slots=True, eq=False)
class _Post:
    """A request that was sent to the server with a POST and waits for its reply."""

    message: Incoming
    is_modern: bool
    """Whether the request is of the stateless generation."""
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    dispatch: Dispatch = field(default_factory=Dispatch)
    note_started: Callable[[], None] = lambda: None

    @property
    def message_id(self) -> MessageId:
        assert self.message.id is not msgspec.UNSET
        return self.message.id


class StreamableWire:
    """One connection over streamable HTTP."""

    def __init__(self, link: RemoteLink, fall_back: FallBack | None = None) -> None:
        """Create the transport for the connection `link`; nothing is sent yet.

        `fall_back` tries to send a line over the older transport; it returns whether that worked.
        """
        self._spec = link.spec
        self._client = link.client
        self._login = link.login
        self._outlet = link.outlet
        self._nursery = link.nursery
        self._fall_back = fall_back
        self._headers = RequestHeaders()
        self._session_id = ""
        self._is_modern = False
        self._is_transport_known = False
        self._posts: dict[MessageId, _Post] = {}
        self._large_bodies = LargeBodies()

    async def send(self, message: Incoming, line: bytes) -> None:
        """Send one line of the client; `message` is its parsed form. Answers arrive separately."""
        if message.method and message.id is not msgspec.UNSET:
            post = _Post(message, bool(modern_version(message)))
            if message.method == "initialize":
                self._session_id = ""
                self._headers.forget()
            else:
                self._is_modern = post.is_modern
            self._posts[post.message_id] = post
            if self._is_transport_known:
                self._nursery.start_soon(self._run_post, post, line)
            else:
                # One at a time: the first answer may show that the server speaks the old transport.
                await self._nursery.start(self._run_first_post, post, line)
        elif message.method == "notifications/cancelled":
            self._cancel(message, line)
        elif message.method == "notifications/initialized":
            # Sent before anything else: until then a server may refuse other messages.
            await self._tell(message, line)
            if self._session_id:
                self._nursery.start_soon(self._listen)
        else:
            self._nursery.start_soon(self._tell, message, line)

    async def goodbye(self) -> None:
        """Tell the server that its session is over."""
        if not self._session_id:
            return
        try:
            headers = self._headers.of_connection()
            async with self._ask("DELETE", headers, b"", Dispatch()):
                return
        except (CallFailedError, LoginNeededError):
            return

    def _cancel(self, message: Incoming, line: bytes) -> None:
        try:
            post = self._posts.get(_CANCELLED.decode(message.params).message_id)
        except MalformedError:
            post = None
        if post is not None and post.is_modern:
            post.scope.cancel()  # in this generation the end of the stream is the signal
            return
        if post is not None:
            post.scope.deadline = trio.current_time() + CANCEL_GRACE
        if not self._is_modern:
            self._nursery.start_soon(self._tell, message, line)

    async def _tell(self, message: Incoming, line: bytes) -> None:
        """Send a message that gets no answer, such as a notification."""
        with trio.move_on_after(NOTICE_TIMEOUT):
            try:
                async with self._ask(
                    "POST", _ACCEPT | self._headers.of(message), line, Dispatch()
                ) as answer:
                    if answer.status == _NOT_FOUND and self._session_id:
                        self._lose(_SESSION_ENDED)
            except LoginNeededError as error:
                self._lose(str(error), is_parked=True)
            except CallFailedError:
                return  # it may be lost like any notification

    async def _run_first_post(
        self, post: _Post, line: bytes, task_status: trio.TaskStatus[None]
    ) -> None:
        is_started = False

        def note_started() -> None:
            nonlocal is_started
            if not is_started:
                is_started = True
                task_status.started()

        post.note_started = note_started
        try:
            await self._run_post(post, line)
        finally:
            note_started()

    async def _run_post(self, post: _Post, line: bytes) -> None:
        try:
            with post.scope:
                await self._exchange(post, line)
        except LoginNeededError as error:
            failure = NotSentError(str(error))
            await self._outlet.deliver(failure_reply(post.message_id, failure))
            self._lose(str(error), is_parked=True)
        except CallFailedError as failure:
            # Report the outcome of this call first, because the call is never repeated at another
            # address.
            await self._outlet.deliver(failure_reply(post.message_id, failure))
            if self._spec.has_others and isinstance(failure, NotSentError | OutcomeUnknownError):
                self._lose(str(failure))
        finally:
            if self._posts.get(post.message_id) is post:
                del self._posts[post.message_id]

    async def _exchange(self, post: _Post, line: bytes) -> None:
        headers = _ACCEPT | self._headers.of(post.message)
        async with self._ask("POST", headers, line, post.dispatch) as answer:
            if answer.status >= _BAD_REQUEST:
                await self._refused(post, line, answer)
                return
            self._is_transport_known = True
            post.note_started()
            if answer.status == _ACCEPTED:
                raise OutcomeUnknownError("accepted the request, but will not answer it")
            if post.message.method == "initialize":
                self._session_id = answer.headers.get(_SESSION, "")
            large = LargeBody(self._large_bodies)
            try:
                if answer.kind == "application/json":
                    await self._read_json(post, answer, large)
                elif answer.kind == "text/event-stream":
                    await self._read_events(post, answer, large)
                else:
                    raise OutcomeUnknownError("answered with neither JSON nor events")
            finally:
                large.leave()

    async def _refused(self, post: _Post, line: bytes, answer: Answer) -> None:
        status = answer.status
        body = b""
        with suppress(OutcomeUnknownError):
            body = await answer.read(ERROR_BODY_CAP_BYTES)
        await answer.aclose()
        if status == _NOT_FOUND and self._session_id:
            failure = NotSentError(_SESSION_ENDED)
            await self._outlet.deliver(failure_reply(post.message_id, failure))
            self._lose(_SESSION_ENDED)
            return
        if status == _FORBIDDEN and "insufficient_scope" in answer.headers.get(_CHALLENGE, ""):
            raise RefusedError(self._login.advice(status))
        error = error_of(body)
        if error:
            self._is_transport_known = True
            await self._outlet.deliver(error_reply(post.message_id, error))
            return
        if status >= _FAULT:
            raise OutcomeUnknownError(f"answered with HTTP status {status}")
        if status == _FORBIDDEN and not self._is_transport_known:
            raise LoginNeededError(self._login.advice(status))
        is_old = status in _OLD_TRANSPORT_STATUSES and not self._is_transport_known
        if is_old and self._fall_back is not None and await self._fall_back(post.message, line):
            return
        await self._outlet.deliver(status_reply(post.message_id, self._spec.name, status))

    async def _read_json(self, post: _Post, answer: Answer, large: LargeBody) -> None:
        try:
            with trio.fail_after(self._spec.idle_timeout):
                lines = lines_of(await answer.read(large=large))
        except trio.TooSlowError:
            raise OutcomeUnknownError("did not finish its answer in time") from None
        except MalformedError as error:
            raise OutcomeUnknownError(f"gave an answer that is unreadable: {error}") from None
        is_answered = False
        for line in lines:
            is_answered = await self._pass_on(post, line) or is_answered
        if not is_answered:
            raise OutcomeUnknownError("gave an answer that is none to this request")

    async def _pass_on(self, post: _Post | None, line: bytes) -> bool:
        """Deliver a line of the server to the client; return whether it was the reply to `post`."""
        if len(line) > _DECODED_BYTES:
            ends = line_ends(line[:_END_BYTES], line[-_END_BYTES:])
            await self._outlet.deliver(line)
            return post is not None and ends is not None and is_same_id(ends.id, post.message_id)
        try:
            message = INCOMING.decode(line)
        except MalformedError as error:
            halved = with_halves(line)
            if halved is None and post is None:
                return False
            if halved is None:
                raise OutcomeUnknownError(f"gave an answer that is unreadable: {error}") from None
            message = halved
        if post is None or not is_reply(message):
            await self._outlet.deliver(line)
            return False
        if message.id is None and len(message.error):
            # An error without an id: on this stream it can only mean this request.
            line = error_reply(post.message_id, bytes(message.error))
        elif not is_same_id(message.id, post.message_id):
            await self._outlet.deliver(line)
            return False
        self._headers.learn(post.message.method, bytes(message.result))
        await self._outlet.deliver(line)
        return True

    async def _read_events(self, post: _Post, answer: Answer, large: LargeBody) -> None:
        events = EventParser()
        if await self._take_events(post, answer, events, large):
            return
        failures = 0
        pauses = StreamPauses()
        while events.last_id and failures < MOST_FAILED_RESUMPTIONS:
            await trio.sleep(pauses.after(events.retry, is_new=events.has_brought))
            try:
                async with self._resumed(events) as again:
                    failures = 0
                    if await self._take_events(post, again, events, large):
                        return
            except LoginNeededError as error:
                self._lose(str(error), is_parked=True)
                break
            except CallFailedError:
                failures += 1
        raise OutcomeUnknownError("closed the stream without an answer")

    async def _take_events(
        self,
        post: _Post | None,
        answer: Answer,
        events: EventParser,
        large: LargeBody | None = None,
    ) -> bool:
        """Deliver the events in `answer` to the client; return whether the reply to `post` came.

        Return False if the stream ended, or was cut and can be resumed.

        Raises:
            OutcomeUnknownError: the stream was cut and cannot be resumed, or was silent too long.
        """
        # Comments do not extend the deadline: a server that sends only those may never answer.
        is_patient = post is None or post.message.method == "subscriptions/listen"
        idle = float("inf") if is_patient else self._spec.idle_timeout
        events.restart()
        with trio.move_on_after(idle) as patience:
            while True:
                try:
                    chunk = await answer.step()
                except OutcomeUnknownError:
                    if events.last_id:
                        return False
                    raise
                for event in await fed_in_turns(events, chunk):
                    if await self._pass_event(post, event):
                        return True
                    patience.deadline = trio.current_time() + idle
                if large is not None:
                    await large.note(events.pending_bytes)
                if not chunk:
                    return False
        raise OutcomeUnknownError(f"sent nothing for {idle:g} s")

    async def _pass_event(self, post: _Post | None, event: Event) -> bool:
        if event.name != "message" or not event.data:
            return False
        is_ended = False
        try:
            lines = lines_of(event.data)
        except MalformedError as error:
            raise OutcomeUnknownError(f"gave an answer that is unreadable: {error}") from None
        for line in lines:
            is_ended = await self._pass_on(post, line) or is_ended
        return is_ended

    async def _listen(self) -> None:
        """Receive what a handshake server sends outside of requests, as long as it offers that."""
        events = EventParser(_DECODED_BYTES)
        pause = FIRST_PAUSE
        while True:
            try:
                async with self._resumed(events) as answer:
                    began_at = trio.current_time()
                    await self._take_events(None, answer, events)
                    if trio.current_time() - began_at > pause:
                        pause = FIRST_PAUSE
            except LoginNeededError as error:
                self._lose(str(error), is_parked=True)
                return
            except (NotSentError, OutcomeUnknownError):
                pass
            except CallFailedError:
                return  # it does not offer it, or is not to be asked again
            await trio.sleep(max(pause, events.retry or 0.0))
            pause = min(pause * 2, LONGEST_PAUSE)

    @asynccontextmanager
    async def _resumed(self, events: EventParser) -> AsyncIterator[Answer]:
        """Yield the stream that continues after the last event, or a new one if there was no event.

        Raises:
            OutcomeUnknownError: the server failed; it may succeed later.
            _NoStreamError: the server does not offer the stream.
            CallFailedError, LoginNeededError: as `_ask`.
        """
        headers = {"accept": "text/event-stream", **self._headers.of_connection()}
        if events.last_id:
            headers["last-event-id"] = events.last_id
        async with self._ask("GET", headers, b"", Dispatch()) as answer:
            if answer.status >= _FAULT:
                raise OutcomeUnknownError(f"answered with HTTP status {answer.status}")
            if answer.status != _OK or answer.kind != "text/event-stream":
                raise _NoStreamError(f"offers no stream (HTTP status {answer.status})")
            yield answer

    @asynccontextmanager
    async def _ask(
        self, method: str, headers: dict[str, str], content: bytes, dispatch: Dispatch
    ) -> AsyncIterator[Answer]:
        """Send the server an HTTP request with this method, headers and content; yield the answer.

        `dispatch` records when its first byte is written.

        Raises:
            CallFailedError: there is no answer.
            LoginNeededError: a person has to log in.
        """
        if self._session_id:
            headers = headers | {_SESSION: self._session_id}
        ask = ServerRequest(method, self._spec.url, headers, content)
        async with self._login.answered(self._client, ask, dispatch, answered) as answer:
            yield answer

    def _lose(self, reason: str, *, is_parked: bool = False) -> None:
        self._outlet.lose(ConnectionLoss(reason, is_parked=is_parked))


class _NoStreamError(CallFailedError):
    """The server does not offer the stream that was requested."""
