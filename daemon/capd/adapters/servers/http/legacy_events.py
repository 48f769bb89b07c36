"""The HTTP+SSE transport of 2024-11-05: one GET receives everything, each message is a POST.

GET ──event `endpoint`──> POST each message to it; its answer comes as an event of the GET
 └── ends ──> lost: this transport cannot resume
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
import msgspec
import trio

from capd.adapters.servers.http.event_stream import EventParser, fed_in_turns
from capd.adapters.servers.http.guarded_client import Answer, Dispatch, ServerRequest, answered
from capd.adapters.servers.http.login_record import LoginNeededError
from capd.adapters.servers.http.remote_link import ConnectionLoss, RemoteLink
from capd.adapters.servers.http.request_headers import RequestHeaders
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
from capd.adapters.servers.server_lines import INCOMING, Incoming
from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
)
from capd.core.results.half_pairs import decoded
from capd_protos.codec import MalformedError

OPEN_TIMEOUT = 20.0
ANSWER_CAP_BYTES = 1 << 20
_OK, _BAD_REQUEST, _FORBIDDEN, _FAULT = 200, 400, 403, 500
_LONGEST_ENDPOINT_BYTES = 16 * 1024


class LegacyWire:
    """One connection over HTTP+SSE, the transport of 2024-11-05."""

    def __init__(self, link: RemoteLink) -> None:
        self._spec = link.spec
        self._client = link.client
        self._login = link.login
        self._outlet = link.outlet
        self._nursery = link.nursery
        self._headers = RequestHeaders()
        self._endpoint = ""
        self._handshake_id: MessageId | msgspec.UnsetType = msgspec.UNSET

    async def open(self) -> None:
        """Open the stream; return once the server has named the address for messages.

        Raises:
            CallFailedError: the server has not named an address.
            LoginNeededError: a person has to log in.
        """
        try:
            with trio.fail_after(OPEN_TIMEOUT):
                await self._nursery.start(self._listen)
        except trio.TooSlowError:
            raise OutcomeUnknownError("did not say where messages go") from None

    async def send(self, message: Incoming, line: bytes) -> None:
        """Send one message of the client; `message` is the parsed form of `line`.

        Answers arrive on the stream.
        """
        if message.method == "initialize" and message.id is not msgspec.UNSET:
            self._handshake_id = message.id
        if message.method == "notifications/initialized":
            # Sent before anything else: until then a server may refuse other messages.
            await self._post(message, line)
        else:
            self._nursery.start_soon(self._post, message, line)

    async def goodbye(self) -> None:
        """Do nothing: in this transport the session ends when the caller closes the connection."""
        await trio.lowlevel.checkpoint()

    async def _post(self, message: Incoming, line: bytes) -> None:
        headers = {"content-type": "application/json", **self._headers.of(message)}
        reply = b""
        loss: ConnectionLoss | None = None
        message_id = None if isinstance(message.id, msgspec.UnsetType) else message.id
        try:
            async with self._ask(
                ServerRequest("POST", self._endpoint, headers, line), Dispatch()
            ) as answer:
                status = answer.status
                body = await answer.read(ANSWER_CAP_BYTES)
            if status >= _FAULT:
                raise OutcomeUnknownError(f"answered with HTTP status {status}")
            if status >= _BAD_REQUEST:
                error = error_of(body)
                reply = (
                    error_reply(message_id, error)
                    if error
                    else status_reply(message_id, self._spec.name, status)
                )
        except LoginNeededError as error:
            loss = ConnectionLoss(str(error), is_parked=True)
            reply = failure_reply(message_id, NotSentError(str(error)))
        except CallFailedError as failure:
            reply = failure_reply(message_id, failure)
        if reply and message.method and message.id is not msgspec.UNSET:
            await self._outlet.deliver(reply)
        if loss is not None:
            self._outlet.lose(loss)

    async def _listen(self, task_status: trio.TaskStatus[None]) -> None:
        try:
            await self._take_events(task_status)
        except (CallFailedError, LoginNeededError) as error:
            if not self._endpoint:
                raise
            is_parked = isinstance(error, LoginNeededError)
            self._outlet.lose(ConnectionLoss(str(error), is_parked=is_parked))
            return
        self._outlet.lose(ConnectionLoss("closed the connection"))

    async def _take_events(self, task_status: trio.TaskStatus[None]) -> None:
        ask = ServerRequest("GET", self._spec.url, {"accept": "text/event-stream"})
        async with self._ask(ask, Dispatch()) as answer:
            self._check(answer)
            events = EventParser()
            while chunk := await answer.step():
                for event in await fed_in_turns(events, chunk):
                    if event.name == "message" and event.data and self._endpoint:
                        await self._pass_on(event.data)
                    elif event.name == "endpoint" and not self._endpoint:
                        self._endpoint = self._checked_endpoint(answer, event.data)
                        task_status.started()
        if not self._endpoint:
            raise OutcomeUnknownError("did not say where messages go")

    def _check(self, answer: Answer) -> None:
        if answer.status == _FORBIDDEN:
            raise LoginNeededError(self._login.advice(_FORBIDDEN))
        if answer.status != _OK or answer.kind != "text/event-stream":
            raise RefusedError(f"offers no stream (HTTP status {answer.status})")

    def _checked_endpoint(self, answer: Answer, data: bytes) -> str:
        """Return the URL for messages, which the server named in `data`.

        The URL must have the server's origin, because messages carry credentials.

        Raises:
            RefusedError: the URL has another origin, or is not valid.
        """
        asked = httpx2.URL(self._spec.url)
        try:
            if len(data) > _LONGEST_ENDPOINT_BYTES:
                raise RefusedError("names an endpoint of absurd length")
            url = answer.url.join(data.decode())
        except (UnicodeDecodeError, httpx2.InvalidURL):
            raise RefusedError("names an endpoint that is not a URL") from None
        is_kept = (url.scheme, url.host, url.port) == (asked.scheme, asked.host, asked.port)
        if not is_kept or url.userinfo not in {b"", asked.userinfo}:
            raise RefusedError("names an endpoint on another server")
        return str(url)

    async def _pass_on(self, data: bytes) -> None:
        try:
            lines = lines_of(data)
        except MalformedError:
            return
        for line in lines:
            if self._handshake_id is not msgspec.UNSET:
                self._learn(line)
            await self._outlet.deliver(line)

    def _learn(self, line: bytes) -> None:
        try:
            message = decoded(INCOMING, line)
        except MalformedError:
            return
        if is_reply(message) and is_same_id(message.id, self._handshake_id):
            self._handshake_id = msgspec.UNSET
            self._headers.learn("initialize", bytes(message.result))

    @asynccontextmanager
    async def _ask(self, ask: ServerRequest, dispatch: Dispatch) -> AsyncIterator[Answer]:
        async with self._login.answered(self._client, ask, dispatch, answered) as answer:
            yield answer
