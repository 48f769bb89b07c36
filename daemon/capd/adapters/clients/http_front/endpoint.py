"""The one address of the HTTP front, `/mcp`: finds the session of a request, and answers it.

    POST  a request     answered as one JSON document; as events if the client accepts them, and if
                        other lines come before the answer or the answer takes 10 s
          anything else passed on, 202
    GET                 events that belong to no request, or those that a client has missed
    DELETE              ends the session

In the handshake generation `initialize` opens a session, `Mcp-Session-Id` names it, and a lost
connection cancels nothing. In the stateless generation every request names its client program;
requests of one program share a session, and closing an answer cancels its request.
"""

import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
import structlog
import trio

from capd.adapters.clients.http_front import stateless_headers
from capd.adapters.clients.http_front.answers import (
    STATUS,
    Accepted,
    HttpRefusedError,
    StreamPosition,
    error_line,
    follow,
    only,
    send_line,
    status,
)
from capd.adapters.clients.http_front.http_connection import EVENTS, JSON, HttpAnswer, HttpRequest
from capd.adapters.clients.http_front.http_session import Exchange, HttpSession
from capd.adapters.clients.http_front.posted_message import (
    Message,
    NotAMessageError,
    agreed_version,
    client_name,
    has_version,
    message_of,
)
from capd.core.errors import CapdError, described
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.generations import (
    CLIENT_INFO,
    HANDSHAKE_VERSIONS,
    STATELESS_VERSIONS,
    EnvelopeError,
    Members,
)
from capd.core.protocol.outcomes import internal_error
from capd_protos import socket as frames

log = structlog.get_logger(actor="http_gateway")

PATH = "/mcp"
SESSION_HEADER = "mcp-session-id"
JSON_PATIENCE = 10.0
"""Seconds after which an answer becomes a stream, if the client accepts one, because Node's fetch
gives up after 300 s without a response head."""
RETRY_MILLISECONDS = 500
PRIMED_SINCE = "2025-11-25"
"""The first version in which a stream may start with an event without data. Readers of older
versions take such an event for a broken message."""
IDLE_SESSION = 1800.0
"""Seconds without a request and without a stream after which a session ends. HTTP clients need not
say goodbye, and their sessions hold servers."""
MOST_SESSIONS = 256
LOOK_AGAIN = 30.0

_EVENT_ID = lazy_pattern(r"([a-z]+(?:-[0-9]{1,18})?)/([0-9]{1,18})")
_STANDALONE = "standalone"


class NoSessionError(CapdError):
    """A session cannot be opened at the moment."""


@dataclass(frozen=True, slots=True)
class SessionOpener:
    """The functions by which the front opens sessions."""

    open: Callable[[HttpSession, str, bool], Awaitable[None]]
    """Opens a session for the client of the given name. If the last argument is True, later
    connections of a client of that name get the same session. Raises NoSessionError."""
    prepare: Callable[[HttpSession], Awaitable[None]]
    """Switches on the configured capabilities with which every session of this front starts."""


class _Shared:
    """The session that all stateless requests of one client program share."""

    def __init__(self) -> None:
        self.session = HttpSession()
        self.ready = trio.Event()
        self.problem = ""


class Endpoint:
    """Answers all requests to the one address of the HTTP front; `run` it in a task of its own."""

    def __init__(self, opener: SessionOpener, *, poll_after: float = 0.0) -> None:
        """Create the endpoint, whose sessions `opener` opens.

        An unfinished answer is closed once, after `poll_after` seconds; 0 for never. The client
        then fetches the rest with a GET (MCP, "Streamable HTTP", polling).
        """
        self._opener = opener
        self._poll_after = poll_after or float("inf")
        self._sessions: dict[str, HttpSession] = {}
        self._shared: dict[str, _Shared] = {}

    async def run(self) -> None:
        """Open shared sessions, and end sessions that nobody uses."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                await trio.sleep(LOOK_AGAIN)
                self._drop_ended()
                idle_since = trio.current_time() - IDLE_SESSION
                for session in self._all():
                    if not session.open_answers and session.used_at < idle_since:
                        try:
                            await session.end()
                        except Exception as error:  # noqa: BLE001 - the boundary of one session
                            log.error("task_failed", task="idle session", **described(error))

    async def respond(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Answer one accepted request by means of `answer`."""
        try:
            if request.path != PATH:
                await answer.send(404)
            elif request.method == "POST":
                await self._post(request, answer)
            elif request.method == "GET":
                await self._get(request, answer)
            elif request.method == "DELETE":
                await self._delete(request, answer)
            else:
                await answer.send(405, headers=(("allow", "GET, POST, DELETE"),))
        except HttpRefusedError as refused:
            await answer.send(refused.status, error_line(None, refused.error))
        except NotAMessageError as error:
            code = frames.INVALID_REQUEST if error.is_json else frames.PARSE_ERROR
            await answer.send(400, error_line(None, frames.RpcError(code, str(error))))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The client has gone.
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: each request has an answer
            log.error("task_failed", task="http request", **described(error))
            # If the answer has begun, no second head is sent: the connection is closed instead.
            failure = frames.RpcError(frames.INTERNAL_ERROR, internal_error(error))
            await answer.send(500, error_line(None, failure))

    # Requests

    async def _post(self, request: HttpRequest, answer: HttpAnswer) -> None:
        if request.value("content-type").partition(";")[0].strip().lower() != JSON:
            raise HttpRefusedError(415, f"a body is of type {JSON}")
        accepted = Accepted.of(request)
        message = message_of(request.body)
        if _is_stateless(request, message):
            await self._stateless(request, message, accepted, answer)
        elif message.is_request and message.method == "initialize":
            await self._initialize(message, accepted, answer)
        else:
            session = self._named(request)
            if not message.is_request:
                await session.note(message)
                await answer.send(202)
                return
            exchange = await session.request(message, takes_events=accepted.events)
            with _answering(session):
                await self._answer(session, exchange, accepted, answer)

    async def _initialize(self, message: Message, accepted: Accepted, answer: HttpAnswer) -> None:
        self._drop_ended()
        if len(self._sessions) >= MOST_SESSIONS:
            raise HttpRefusedError(503, f"{MOST_SESSIONS} sessions are open; end one first")
        # The session counts for `MOST_SESSIONS` from here on, before the client knows its name.
        name = secrets.token_urlsafe(24)
        session = self._sessions[name] = HttpSession()
        is_kept = False
        try:
            await self._opener.open(session, client_name(message.params, "clientInfo"), False)
            exchange = await session.request(message, takes_events=False)
            line = await only(exchange)
            agreed = agreed_version(line)
            if agreed:
                await self._opener.prepare(session)
                session.version = agreed
                is_kept = True
                await send_line(answer, accepted, line, ((SESSION_HEADER, name),))
            else:
                await send_line(answer, accepted, line)
        except NoSessionError as error:
            raise HttpRefusedError(503, str(error), frames.UNAVAILABLE) from None
        finally:
            if not is_kept:
                self._sessions.pop(name, None)
                with trio.move_on_after(1.0, shield=True):
                    await session.end()

    async def _stateless(
        self, request: HttpRequest, message: Message, accepted: Accepted, answer: HttpAnswer
    ) -> None:
        if not message.is_request:
            # In this generation, notifications and responses of clients mean nothing.
            try:
                stateless_headers.check_notification(request, message.method)
            except EnvelopeError as error:
                raise HttpRefusedError(400, str(error), error.code) from None
            await answer.send(202)
            return
        try:
            members = stateless_headers.checked_members(request, message.method, message.params)
            session = await self._shared_session(message, members["_meta"])
            if message.method == "tools/call":
                await _check_arguments(request, members, session)
                if session.is_over.is_set():
                    # It ended meanwhile. No server has got the call yet, so another session can.
                    session = await self._shared_session(message, members["_meta"])
                    await _check_arguments(request, members, session)
        except EnvelopeError as error:
            line = error_line(message.id, frames.RpcError(error.code, str(error), error.data))
            await answer.send(STATUS.get(error.code, 400), line)
            return
        exchange = await session.request(message, takes_events=accepted.events)
        try:
            with _answering(session):
                await self._answer(session, exchange, accepted, answer)
        finally:
            session.cancel(exchange)

    async def _shared_session(self, message: Message, meta: msgspec.Raw) -> HttpSession:
        """Return the session of the client that `meta` names; open it if there is none."""
        self._drop_ended()
        name = client_name(meta, CLIENT_INFO)
        shared = self._shared.get(name)
        if shared is None:
            if len(self._shared) >= MOST_SESSIONS:
                raise HttpRefusedError(503, f"{MOST_SESSIONS} clients have a session already")
            shared = self._shared[name] = _Shared()
            # In a task of its own, because the first client may disconnect meanwhile.
            self._nursery.start_soon(self._prepare_shared, shared, name, message, meta)
        await shared.ready.wait()
        if shared.problem:
            raise HttpRefusedError(503, shared.problem, frames.UNAVAILABLE)
        shared.session.used_at = trio.current_time()
        return shared.session

    async def _prepare_shared(
        self, shared: _Shared, name: str, message: Message, meta: msgspec.Raw
    ) -> None:
        session = shared.session
        try:
            await self._opener.open(session, name, True)
            # Sent before `prepare`: servers that it starts are told the client info.
            params = msgspec.Raw(b'{"_meta":%s}' % bytes(meta))
            asked = Message(method="server/discover", id=message.id, params=params)
            await only(await session.request(asked, takes_events=False))
            await self._opener.prepare(session)
        except NoSessionError as error:
            shared.problem = str(error)
            self._drop_shared(name, shared)
        except Exception as error:  # noqa: BLE001 - the boundary: other clients share the nursery
            log.error("task_failed", task="shared session", **described(error))
            shared.problem = internal_error(error)
            self._drop_shared(name, shared)
        finally:
            shared.ready.set()

    def _drop_shared(self, name: str, shared: _Shared) -> None:
        """Forget a shared session that could not be prepared; the next request opens another."""
        if self._shared.get(name) is shared:
            del self._shared[name]

    # Streams and ends

    async def _get(self, request: HttpRequest, answer: HttpAnswer) -> None:
        session = self._named(request)
        if not Accepted.of(request).events:
            raise HttpRefusedError(406, f"a GET must accept {EVENTS}")
        outbox, name, number = session.standalone, _STANDALONE, 0
        last = request.value("last-event-id")
        if last:
            found = _EVENT_ID.fullmatch(last)
            exchange = session.exchange(found[1]) if found else None
            if found and exchange is not None:
                outbox, name = exchange.outbox, found[1]
            elif not found or found[1] != _STANDALONE:
                raise HttpRefusedError(
                    400, "this event's stream is no longer stored: its request may have run"
                )
            number = int(found[2])
            if not outbox.has(number):
                raise HttpRefusedError(
                    400, "the events after this one are no longer stored: its request may have run"
                )
        with _answering(session):
            await answer.begin_events()
            if not last and _is_primed(session):
                await answer.event(b"", f"{name}/0", retry=RETRY_MILLISECONDS)
            # A client that has come back once gets the rest without another interruption.
            place = StreamPosition(name, number, outbox.claim())
            is_whole = await follow(answer, outbox, place, float("inf"))
            if is_whole and (exchange := session.exchange(name)) is not None:
                session.sent(exchange)

    async def _delete(self, request: HttpRequest, answer: HttpAnswer) -> None:
        session = self._named(request)
        del self._sessions[request.value(SESSION_HEADER)]
        await session.end()
        await answer.send(204)

    def _named(self, request: HttpRequest) -> HttpSession:
        """Return the session that the request's `Mcp-Session-Id` header names.

        Raises:
            HttpRefusedError: there is no such session, or the header with the protocol version is
                not valid.
        """
        version = request.value(stateless_headers.VERSION_HEADER)
        if version and version not in HANDSHAKE_VERSIONS:
            known = ", ".join(HANDSHAKE_VERSIONS)
            raise HttpRefusedError(400, f"MCP-Protocol-Version is one of {known}")
        name = request.value(SESSION_HEADER)
        if not name:
            raise HttpRefusedError(400, "Mcp-Session-Id is missing")
        session = self._sessions.get(name)
        if session is None or session.is_over.is_set():
            raise HttpRefusedError(404, "this session has ended; send initialize again")
        session.used_at = trio.current_time()
        return session

    def _all(self) -> list[HttpSession]:
        shared = [each.session for each in self._shared.values() if each.ready.is_set()]
        return [*self._sessions.values(), *shared]

    def _drop_ended(self) -> None:
        for name in [n for n, session in self._sessions.items() if session.is_over.is_set()]:
            del self._sessions[name]
        for name in [n for n, each in self._shared.items() if each.session.is_over.is_set()]:
            del self._shared[name]

    # Answers

    async def _answer(
        self, session: HttpSession, exchange: Exchange, accepted: Accepted, answer: HttpAnswer
    ) -> None:
        """Send the client the answer of `exchange`, as one document or as a stream of events.

        `accepted` says which of the two the client accepts.
        """
        outbox = exchange.outbox
        claim = outbox.claim()
        # A client can come back only to a stream of events, and only after an event with an id.
        is_polled = _is_primed(session) and accepted.events and self._poll_after < float("inf")
        if accepted.json and not is_polled:
            first = None
            with trio.move_on_after(JSON_PATIENCE if accepted.events else float("inf")):
                first = await outbox.after(0, claim)
            if first is not None and outbox.is_last(first[0]):
                session.forget(exchange)
                if isinstance(first[1], bytes):
                    await answer.send(200 if session.version else status(first[1]), first[1])
                else:
                    await answer.send_large(first[1])
                return
            if session.is_over.is_set():
                raise HttpRefusedError(503, "the session has ended: the request may have run")
            if not accepted.events:
                raise HttpRefusedError(503, "the request was cancelled")
        await answer.begin_events()
        name = exchange.name if session.version else ""
        until = float("inf")
        if name and _is_primed(session):
            until = trio.current_time() + self._poll_after
            await answer.event(b"", f"{name}/0", retry=RETRY_MILLISECONDS)
        if await follow(answer, outbox, StreamPosition(name, 0, claim), until):
            session.sent(exchange)


async def _check_arguments(request: HttpRequest, members: Members, session: HttpSession) -> None:
    # Not `tools/list`, which would count as a listing by the client.
    asked = Message(method="capd/tools", id=msgspec.Raw(b"0"))
    tools = await only(await session.request(asked, takes_events=False))
    if stateless_headers.may_have_arguments(request, tools):
        stateless_headers.check_arguments(request, members, tools)


@contextmanager
def _answering(session: HttpSession) -> Iterator[None]:
    """Keep a session from being ended as idle while the block runs."""
    session.open_answers += 1
    try:
        yield
    finally:
        session.open_answers -= 1
        session.used_at = trio.current_time()


def _is_stateless(request: HttpRequest, message: Message) -> bool:
    version = request.value(stateless_headers.VERSION_HEADER)
    if version in STATELESS_VERSIONS or (message.is_request and has_version(message.params)):
        return True
    # Without a session id, a handshake request can only be `initialize`.
    return (
        not request.value(SESSION_HEADER)
        and message.is_request
        and (message.method != "initialize")
    )


def _is_primed(session: HttpSession) -> bool:
    return session.version >= PRIMED_SINCE
