"""The messages that a server sends by itself: requests to a client, and notifications.

capd passes each message to the only session that it can be for (`core/protocol/message_target.py`).
If there is no such session, the message is counted and dropped. A server may request what the
client supports, and gets an error if no client can answer.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import structlog
import trio

from capd.adapters.servers.callers import Peer
from capd.adapters.servers.pending import Pending
from capd.adapters.servers.server_lines import (
    CANCELLED,
    LOGGED,
    PROGRESS,
    SUBSCRIBED,
    TASK_CHANGED,
    UPDATED,
    Incoming,
    own_id,
)
from capd.adapters.step_boundary import boundary
from capd.core.errors import described
from capd.core.protocol.elicitation import METHOD as ELICITATION
from capd.core.protocol.elicitation import (
    MOST_QUESTIONS,
    elicitation_for_client,
    questions_for_client,
)
from capd.core.protocol.generations import INVALID_PARAMS, offers, without_subscription
from capd.core.protocol.message_target import is_shown, only_session, refusal
from capd.core.protocol.outcomes import RefusedError, ServerError, internal_error
from capd.core.protocol.resource_uris import is_within
from capd.core.protocol.tasks import CHANGED
from capd_protos.codec import MalformedError
from capd_protos.socket import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REFUSED
from capd_protos.types import ServerName, SessionKey

MOST_QUESTION_BYTES = 8 << 20
"""The most bytes of one request: enough for a few pictures for a model."""
MOST_OPEN_BYTES = 16 << 20
"""The most bytes of all unanswered requests of one server."""
QUESTIONS_A_SECOND = 50.0
QUESTION_BURST = 200
"""Requests that pass at once before `QUESTIONS_A_SECOND` limits their rate."""
MOST_NOTICE_BYTES = 1 << 20
"""The most bytes of one notification."""

RequestId = int | str | float | None

log = structlog.get_logger()


class ServerMessages:
    """Handles the messages that a server sends by itself over one connection."""

    def __init__(
        self,
        name: ServerName,
        project: str,
        *,
        pending: Mapping[int, Pending],
        holders: Mapping[SessionKey, Peer],
        counts: Counter[str],
        post: Callable[[bytes], None],
        on_list_changed: Callable[[str], None],
    ) -> None:
        """Create the handler for the server `name`, whose instance is for `project`.

        `pending` are the calls in progress at the server, and `holders` the sessions that hold the
        instance. Dropped messages are counted in `counts`. `post` queues a line to the server;
        `on_list_changed` is called with the name of a changed list.
        """
        self.subscribers: dict[str, dict[SessionKey, Peer]] = {}
        """The sessions that subscribed to a resource, by its URI."""
        self.watchers: dict[str, dict[SessionKey, Peer]] = {}
        """The sessions that listen for a task, by its id."""
        self._name = name
        self._project = project
        self._pending = pending
        self._holders = holders
        self._counts = counts
        self._post = post
        self._on_list_changed = on_list_changed
        self.count = 0
        """The number of requests and notifications that have arrived."""
        self._questions: dict[RequestId, trio.CancelScope] = {}
        self._open_bytes = 0
        self._rate = Rate(QUESTIONS_A_SECOND, QUESTION_BURST)

    def on_request(self, message: Incoming, nursery: trio.Nursery) -> None:
        """Answer the server's request `message`.

        If a client has to be asked, this is done by a task in `nursery`.
        """
        assert not isinstance(message.id, msgspec.UnsetType)
        self.count += 1
        if message.method == "ping":
            self._reply(message.id, b'"result":{}')
        elif message.id in self._questions:
            # The server could not tell the two answers apart.
            self._counts["repeated_id"] += 1
            self._refuse(message.id, INVALID_REQUEST, "a request with this id is open already")
        elif reason := self._no_room(message):
            self._counts["refused_question"] += 1
            self._refuse(message.id, REFUSED, reason)
        else:
            self._open_bytes += _size_bytes(message)
            scope = self._questions[message.id] = trio.CancelScope()
            # The recipient is decided now: later another session's call may be the newest.
            nursery.start_soon(self._answer, message, message.id, scope, self._meant())

    def refuse_invalid(self, message_id: RequestId) -> None:
        """Send an error for a line of the server that has an id but is no request and no reply."""
        self._refuse(message_id, INVALID_REQUEST, "not a request: it names no method")

    def refuse_large(self, message_id: RequestId) -> None:
        """Send an error for a request of the server that is too long to be read."""
        self._counts["refused_question"] += 1
        self._refuse(message_id, REFUSED, f"a request has at most {MOST_QUESTION_BYTES} bytes")

    def _no_room(self, message: Incoming) -> str:
        """Return which limit keeps a request from being passed on; empty if none does."""
        if len(self._questions) >= MOST_QUESTIONS:
            return f"{MOST_QUESTIONS} requests of this server wait for an answer already"
        if _size_bytes(message) > MOST_QUESTION_BYTES:
            return f"a request has at most {MOST_QUESTION_BYTES} bytes"
        if self._open_bytes + _size_bytes(message) > MOST_OPEN_BYTES:
            return f"requests of {self._open_bytes} bytes wait for an answer already"
        return ""

    def on_notification(self, message: Incoming) -> None:
        """Pass a server's notification on to the sessions that it concerns."""
        self.count += 1
        if _size_bytes(message) > MOST_NOTICE_BYTES:
            self._counts["large_notification"] += 1
            return
        params = bytes(message.params) or b"{}"
        try:
            match message.method:
                case "notifications/progress":
                    self._progressed(params)
                case "notifications/message":
                    self._logged(params)
                case "notifications/resources/updated":
                    self._updated(params)
                case "notifications/tasks":
                    self._task_changed(params)
                case "notifications/cancelled":
                    scope = self._questions.get(CANCELLED.decode(params).requestId)
                    if scope is not None:
                        scope.cancel()
                case "notifications/subscriptions/acknowledged":
                    self._acknowledged(message.method, params)
                case (
                    "notifications/tools/list_changed"
                    | "notifications/prompts/list_changed"
                    | "notifications/resources/list_changed"
                ):
                    self._on_list_changed(message.method.split("/")[1])
                case _:
                    self._pass_on(message.method, bytes(message.params))
        except MalformedError:
            self._counts["malformed_notification"] += 1
        except Exception as error:  # noqa: BLE001 - the boundary: the server is other sessions' too
            log.error("task_failed", task="notification", server=self._name, **described(error))

    def _progressed(self, params: bytes) -> None:
        token = own_id(PROGRESS.decode(params).progressToken)
        pending = None if token is None else self._pending.get(token)
        if pending is None:
            self._counts["unknown_progress"] += 1
            return
        pending.extend()
        pending.caller.progress(params)

    def _acknowledged(self, method: str, params: bytes) -> None:
        stream = own_id(SUBSCRIBED.decode(params).meta.subscription_id)
        pending = None if stream is None else self._pending.get(stream)
        if pending is not None:
            pending.caller.tell(method, params)

    def _logged(self, params: bytes) -> None:
        peer = self._meant()
        level = LOGGED.decode(params).level
        if peer is None:
            self._counts["unclaimed_notification"] += 1
        elif is_shown(level, peer.log_level):
            peer.tell("notifications/message", params)

    def _updated(self, params: bytes) -> None:
        uri = UPDATED.decode(params).uri
        concerned = [
            who for subscribed, who in self.subscribers.items() if is_within(uri, subscribed)
        ]
        passed = without_subscription(params)
        for peer in {each.session: each for who in concerned for each in who.values()}.values():
            with boundary("resource update", log=log):
                peer.tell("notifications/resources/updated", passed)

    def _task_changed(self, params: bytes) -> None:
        # The notification may contain the task's result, so only sessions that listen for the task
        # get it.
        watching = self.watchers.get(TASK_CHANGED.decode(params).task_id, {})
        if not watching:
            self._counts["unclaimed_notification"] += 1
        try:
            told = questions_for_client(self._name, without_subscription(params))
        except RefusedError:
            # The client hears why when it asks for the task.
            self._counts["refused_question"] += 1
            return
        for peer in list(watching.values()):
            peer.tell(CHANGED, told)

    def _pass_on(self, method: str, params: bytes) -> None:
        peer = self._meant()
        if peer is None:
            self._counts["unclaimed_notification"] += 1
        else:
            peer.tell(method, params)

    def _meant(self) -> Peer | None:
        """Return the only client that a message can be for; None if there is no such client.

        If calls are in progress, and all from one session, that client is the caller of the newest
        call. Without calls, it is the only session that holds the instance.
        """
        calls = self._calls()
        session = only_session((call.caller.session for call in calls), self._holders)
        if session is None:
            return None
        own = [call.caller for call in calls if call.caller.session == session]
        return own[-1] if own else self._holders.get(session)

    def _calls(self) -> list[Pending]:
        return [each for each in self._pending.values() if each.is_sent and each.caller.session]

    async def _answer(
        self,
        message: Incoming,
        message_id: RequestId,
        scope: trio.CancelScope,
        peer: Peer | None,
    ) -> None:
        params = bytes(message.params) or b"{}"
        try:
            with scope:
                # Requests above the rate wait, so that a flood does not starve other servers.
                await trio.sleep(self._rate.wait(trio.current_time()))
                result = await self._result(message.method, params, peer)
                self._reply(message_id, b'"result":' + result)
        except ServerError as error:
            self._reply(message_id, b'"error":' + error.error)
        except _NotOfferedError as error:
            self._refuse(message_id, METHOD_NOT_FOUND, str(error))
        except MalformedError as error:
            self._refuse(message_id, INVALID_PARAMS, f"params of {message.method}: {error}")
        except RefusedError as error:
            self._refuse(message_id, REFUSED, str(error))
        except Exception as error:  # noqa: BLE001 - the boundary: the server is other sessions' too
            log.error("task_failed", task="question", server=self._name, **described(error))
            self._refuse(message_id, INTERNAL_ERROR, internal_error(error))
        finally:
            self._open_bytes -= _size_bytes(message)
            del self._questions[message_id]

    async def _result(self, method: str, params: bytes, peer: Peer | None) -> bytes:
        if method == "roots/list" and (peer is None or not offers(peer.client, method)):
            return self._project_root()
        if peer is None:
            if self._holders or self._calls():
                raise RefusedError(refusal(self._name, method))
            raise _NotOfferedError("no session uses this server at this moment")
        if not offers(peer.client, method, params):
            raise _NotOfferedError("the client does not offer this")
        if method == ELICITATION:
            params = elicitation_for_client(self._name, params)
        waiting = [call for call in self._calls() if call.caller.session == peer.session]
        is_answered = False
        for call in waiting:
            call.pause()
        try:
            answer = await peer.ask(method, params, self._report)
            is_answered = True
        except ServerError:
            is_answered = True
            raise
        finally:
            for call in waiting:
                call.go_on(is_answered=is_answered)
        return answer

    def _report(self, params: bytes) -> None:
        """Send the server the progress that a client reports on one of its requests."""
        self._post(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%s}' % params)

    def _project_root(self) -> bytes:
        """Return capd's own answer to `roots/list`, if no client can answer: the project alone.

        Raises:
            _NotOfferedError: the instance is for no project.
        """
        if not self._project:
            raise _NotOfferedError("the client does not offer this")
        root = Path(self._project)
        return msgspec.json.encode({"roots": [{"uri": root.as_uri(), "name": root.name}]})

    def _refuse(self, message_id: RequestId, code: int, text: str) -> None:
        self._reply(message_id, b'"error":' + msgspec.json.encode({"code": code, "message": text}))

    def _reply(self, message_id: RequestId, outcome: bytes) -> None:
        self._post(b'{"jsonrpc":"2.0","id":%s,%s}' % (msgspec.json.encode(message_id), outcome))


def _size_bytes(message: Incoming) -> int:
    """Return about how many bytes a message keeps in memory until it is answered or passed on."""
    id_bytes = len(message.id) if isinstance(message.id, str) else 0
    return len(message.params) + len(message.method) + id_bytes


class Rate:
    """Allows `burst` events at once, then `per_second` on average. The caller passes `now`."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._step = 1.0 / per_second
        self._slack = burst * self._step
        # The time at which all admitted events would be done at the steady rate.
        self._due_at = float("-inf")

    def wait(self, now: float) -> float:
        """Count an event at the time `now`; return for how many seconds it has to wait."""
        self._due_at = max(self._due_at, now) + self._step
        return max(0.0, self._due_at - now - self._slack)


class _NotOfferedError(Exception):
    """No client supports the server's request."""
