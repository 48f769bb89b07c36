"""A server's own messages go to the one session they are for, and to no other."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.servers.instance import GATHERED_FOR
from capd.adapters.servers.pending import LONGEST_PAUSE
from capd.adapters.servers.server_messages import (
    MOST_NOTICE_BYTES,
    MOST_QUESTION_BYTES,
    QUESTION_BURST,
    QUESTIONS_A_SECOND,
)
from capd.core.protocol.elicitation import MOST_QUESTIONS
from capd.core.protocol.outcomes import CallFailedError, RefusedError, ServerError
from line_server import EVERYTHING, Editor, Json, LineServer, serving

TIMEOUT = 60.0
QUESTION: Json = {"id": 1, "method": "elicitation/create", "params": {"message": "who?"}}
ASKED = ("elicitation/create", b'{"message":"[alpha] who?"}')
SEVERAL = (
    "several sessions use alpha, and elicitation/create could be for any of them; "
    'give this server scope = "session" in its definition'
)


class Stage:
    """A server, and calls of editors that are in progress there."""

    def __init__(self, server: LineServer, nursery: trio.Nursery) -> None:
        self.server = server
        self.ends: list[Any] = []
        self._nursery = nursery

    def hold(self, *editors: Editor) -> None:
        for editor in editors:
            self.server.instance.join(editor)

    async def call(self, editor: Editor, scope: trio.CancelScope | None = None) -> int:
        """Begin an editor's call; return its id at the server."""
        self._nursery.start_soon(self._call, editor, scope or trio.CancelScope())
        await wait_all_tasks_blocked()
        number: int = self.server.asked("tools/call")[-1]["id"]
        return number

    async def _call(self, editor: Editor, scope: trio.CancelScope) -> None:
        members = {"name": msgspec.Raw(b'"t"'), "_meta": msgspec.Raw(b'{"progressToken":"p"}')}
        with scope:
            try:
                server_connection = self.server.server_connection
                result = await server_connection.relay(
                    "tools/call", members, editor, timeout=TIMEOUT
                )
            except CallFailedError as error:
                self.ends.append(error.outcome)
            else:
                self.ends.append(result)


@asynccontextmanager
async def staged(project: str = "") -> AsyncIterator[Stage]:
    async with serving(project) as (server, nursery):
        yield Stage(server, nursery)


def error(number: int, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


# Whom a server may ask


async def test_the_session_whose_call_is_in_flight_is_asked(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a, b = Editor("a"), Editor("b")
        stage.hold(a, b)
        await stage.call(a)

        await stage.server.say(QUESTION)

        assert (a.asked, b.asked) == ([ASKED], [])
        answer = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept"}}
        assert stage.server.answered() == [answer]


async def test_the_newest_call_of_a_session_is_asked(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        older, newer = Editor("a"), Editor("a")
        stage.hold(Editor("a"))
        for each in (older, newer):
            await stage.call(each)

        await stage.server.say(QUESTION)

        assert (older.asked, newer.asked) == ([], [ASKED])


async def test_the_only_holder_is_asked_outside_of_any_call(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)

        await stage.server.say(QUESTION)

        assert a.asked == [ASKED]


@pytest.mark.parametrize("in_call", [0, 2])
async def test_between_two_sessions_nobody_is_asked_and_the_refusal_names_the_remedy(
    autojump_clock: MockClock, in_call: int
) -> None:
    async with staged() as stage:
        editors = [Editor("a"), Editor("b")]
        stage.hold(*editors)
        for each in editors[:in_call]:
            await stage.call(each)

        await stage.server.say(QUESTION)

        assert [each.asked for each in editors] == [[], []]
        assert stage.server.answered() == [error(1, 4003, SEVERAL)]


async def test_a_server_that_nobody_uses_can_ask_nobody(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.server.say(QUESTION)

        text = "no session uses this server at this moment"
        assert stage.server.answered() == [error(1, -32601, text)]


@pytest.mark.parametrize(
    ("capabilities", "params"),
    [(b'{"sampling":{}}', {"mode": "form"}), (b'{"elicitation":{"form":{}}}', {"mode": "url"})],
)
async def test_a_client_is_not_asked_what_it_does_not_offer(
    autojump_clock: MockClock, capabilities: bytes, params: Json
) -> None:
    async with staged() as stage:
        a = Editor("a", capabilities)
        stage.hold(a)

        await stage.server.say({**QUESTION, "params": params})

        assert a.asked == []
        assert stage.server.answered() == [error(1, -32601, "the client does not offer this")]


@pytest.mark.parametrize("editors", [[], [Editor("a", b"{}")], [Editor("a"), Editor("b")]])
async def test_roots_that_no_client_gives_are_the_project(
    autojump_clock: MockClock, editors: list[Editor]
) -> None:
    async with staged("/src/my app") as stage:
        stage.hold(*editors)

        await stage.server.say({"id": 1, "method": "roots/list"})

        roots = [{"uri": "file:///src/my%20app", "name": "my app"}]
        assert stage.server.answered() == [{"jsonrpc": "2.0", "id": 1, "result": {"roots": roots}}]


async def test_a_clients_own_roots_come_before_the_project(autojump_clock: MockClock) -> None:
    async with staged("/src/app") as stage:
        a = Editor("a")
        a.result = b'{"roots":[]}'
        stage.hold(a)

        await stage.server.say({"id": "r", "method": "roots/list"})

        answer = {"jsonrpc": "2.0", "id": "r", "result": {"roots": []}}
        assert stage.server.answered() == [answer]


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (ServerError(b'{"code":-1,"message":"no","x":1}'), {"code": -1, "message": "no", "x": 1}),
        (RefusedError("gone"), {"code": 4003, "message": "gone"}),
    ],
)
async def test_a_clients_error_is_the_servers_answer(
    autojump_clock: MockClock, problem: Exception, expected: Json
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.result = problem
        stage.hold(a)

        await stage.server.say(QUESTION)

        assert stage.server.answered() == [{"jsonrpc": "2.0", "id": 1, "error": expected}]


async def test_a_ping_is_answered_whoever_is_there(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        await stage.server.say({"id": "p", "method": "ping"})

        assert stage.server.answered() == [{"jsonrpc": "2.0", "id": "p", "result": {}}]


async def test_a_withdrawn_question_is_withdrawn_at_the_client_and_not_answered(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)
        await stage.server.say(QUESTION)

        for wrong in ({"requestId": 2}, {"requestId": "1"}, {}, {"requestId": 1}):
            await stage.server.say({"method": "notifications/cancelled", "params": wrong})

        assert (a.withdrawn, stage.server.answered()) == (1, [])


async def test_a_server_has_a_bounded_number_of_questions(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)

        for number in range(MOST_QUESTIONS + 1):
            await stage.server.say({**QUESTION, "id": number})

        text = f"{MOST_QUESTIONS} requests of this server wait for an answer already"
        assert stage.server.answered() == [error(MOST_QUESTIONS, 4003, text)]


@pytest.mark.parametrize("method", ["ping", "elicitation/create"])
@pytest.mark.parametrize("request_id", [1.0, 1.5])
async def test_an_answer_has_the_id_of_the_servers_request_as_written(
    autojump_clock: MockClock, request_id: float, method: str
) -> None:
    async with staged() as stage:
        stage.hold(Editor("a"))

        await stage.server.say({**QUESTION, "id": request_id, "method": method})

        assert [repr(each["id"]) for each in stage.server.answered()] == [repr(request_id)]


@pytest.mark.parametrize("params", [{}, {"message": "x" * 100}])
async def test_an_id_that_is_open_already_is_refused_and_the_first_question_stays(
    autojump_clock: MockClock, params: Json
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)
        await stage.server.say(*[{**QUESTION, "params": params}] * 1000)
        refused = stage.server.answered()
        a.hold.set()
        await wait_all_tasks_blocked()

        assert len(a.asked) == 1
        assert refused == [error(1, -32600, "a request with this id is open already")] * 999
        assert stage.server.server_connection.counts == {"repeated_id": 999}
        assert stage.server.answered()[-1]["result"] == {"action": "accept"}


async def test_a_flood_of_questions_passes_at_a_steady_rate(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)
        began = trio.current_time()
        for number in range(1000):
            await stage.server.say({**QUESTION, "id": number})
        await trio.sleep(30 - (trio.current_time() - began))

        # Those that find no room are refused, for the others wait.
        assert len(a.asked) + stage.server.server_connection.counts["refused_question"] == 1000
        assert len(a.asked) <= QUESTION_BURST + 30 * QUESTIONS_A_SECOND


@pytest.mark.parametrize(
    ("sizes", "passed"),
    [([MOST_QUESTION_BYTES - 100], 1), ([MOST_QUESTION_BYTES + 100], 0), ([6 << 20] * 3, 2)],
)
async def test_questions_have_a_bound_in_bytes(
    autojump_clock: MockClock, sizes: list[int], passed: int
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)
        for number, size in enumerate(sizes):
            params = {"message": "x" * size}
            await stage.server.say(
                {"id": number, "method": "sampling/createMessage", "params": params}
            )

        assert len(a.asked) == passed
        assert [each["error"]["code"] for each in stage.server.answered()] == [4003] * (
            len(sizes) - passed
        )


async def test_the_id_of_a_question_counts_as_a_part_of_it(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)
        for number in "ab":
            await stage.server.say({**QUESTION, "id": number * (15 << 19)})
        params = {"message": "x" * (2 << 20)}
        await stage.server.say({"id": 1, "method": "sampling/createMessage", "params": params})

        assert len(a.asked) == 2
        assert [each["error"]["code"] for each in stage.server.answered()] == [4003]


async def test_the_method_of_a_notification_counts_as_a_part_of_it(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)

        await stage.server.say({"method": "notifications/" + "x" * MOST_NOTICE_BYTES})

        assert a.told == []
        assert stage.server.server_connection.counts == {"large_notification": 1}


async def test_a_notification_has_a_bound_in_bytes(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)
        for size in (MOST_NOTICE_BYTES // 2, MOST_NOTICE_BYTES):
            params = {"level": "info", "data": "x" * size}
            await stage.server.say({"method": "notifications/message", "params": params})

        assert len(a.told) == 1
        assert stage.server.server_connection.counts == {"large_notification": 1}


async def test_a_form_that_asks_for_a_secret_reaches_nobody(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)
        form = {"type": "object", "properties": {"apiKey": {"type": "string"}}}
        params = {"message": "who?", "requestedSchema": form}

        await stage.server.say({**QUESTION, "params": params})

        assert a.asked == []
        assert "looks like a secret" in stage.server.answered()[0]["error"]["message"]


@pytest.mark.parametrize("repeats", [1, 5])
async def test_questions_that_nobody_answers_keep_no_call_for_ever(
    autojump_clock: MockClock, repeats: int
) -> None:
    async with staged() as stage:
        a = Editor("a")
        await stage.call(a)
        began = trio.current_time()
        for number in range(repeats):
            a.hold = trio.Event()
            a.result = RefusedError("the client has not answered")
            await stage.server.say({**QUESTION, "id": number})
            await trio.sleep(LONGEST_PAUSE / repeats + 12)
            a.hold.set()
            await wait_all_tasks_blocked()
        while not stage.ends:
            await trio.sleep(1)

        assert stage.ends == ["outcome_unknown"]
        assert trio.current_time() - began <= LONGEST_PAUSE + TIMEOUT + 2


async def test_a_question_takes_nothing_of_the_longest_time_of_a_call(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        stage.server.server_connection.longest_call = TIMEOUT
        a = Editor("a")
        a.hold = trio.Event()
        await stage.call(a)
        await stage.server.say(QUESTION)
        await trio.sleep(5 * TIMEOUT)
        a.hold.set()
        await trio.sleep(TIMEOUT - 1)
        before = list(stage.ends)
        await trio.sleep(2)

        assert (before, stage.ends) == ([], ["outcome_unknown"])


async def test_a_person_who_is_asked_has_time_and_the_calls_deadline_waits(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        number = await stage.call(a)
        await stage.server.say(QUESTION)
        await trio.sleep(5 * TIMEOUT)
        while_asked = list(stage.ends)
        a.hold.set()
        await trio.sleep(TIMEOUT - 1)
        await stage.server.say({"id": number, "result": {}})

        assert (while_asked, stage.ends) == ([], [b"{}"])


async def test_after_the_answer_a_call_has_its_deadline_again(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        await stage.call(a)
        await stage.server.say(QUESTION)

        await trio.sleep(TIMEOUT + 1)

        assert stage.ends == ["outcome_unknown"]


async def test_the_deadline_of_another_sessions_call_does_not_wait(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        await stage.call(a)
        await stage.server.say(QUESTION)
        await stage.call(Editor("b"))

        await trio.sleep(TIMEOUT + 1)

        assert stage.ends == ["outcome_unknown"]


# Progress


async def test_progress_of_a_call_reaches_its_caller(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a, b = Editor("a"), Editor("b")
        first = await stage.call(a)
        await stage.call(b)
        params = {"progressToken": first, "progress": 1}

        await stage.server.say({"method": "notifications/progress", "params": params})

        assert ([json.loads(step) for step in a.steps], b.steps) == ([params], [])


async def test_progress_of_an_answer_reaches_the_server(autojump_clock: MockClock) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.hold = trio.Event()
        stage.hold(a)
        await stage.server.say(QUESTION)

        a.on_progress(b'{"progressToken":"mine","progress":1}')
        await wait_all_tasks_blocked()

        params = {"progressToken": "mine", "progress": 1}
        assert [each["params"] for each in stage.server.asked("notifications/progress")] == [params]


# Notifications


def log_of(level: str) -> Json:
    return {"method": "notifications/message", "params": {"level": level, "data": "d"}}


async def test_the_log_reaches_its_session_from_the_level_on_that_it_wants(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        a.log_level = "warning"
        stage.hold(a)

        await stage.server.say(log_of("info"), log_of("warning"), log_of("alert"))

        levels = [json.loads(params)["level"] for _, params in a.told]
        assert levels == ["warning", "alert"]


async def test_what_could_be_for_two_sessions_is_told_to_none_and_counted(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a, b = Editor("a"), Editor("b")
        stage.hold(a, b)

        await stage.server.say(log_of("alert"), {"method": "notifications/x", "params": {}})

        assert (a.told, b.told) == ([], [])
        assert stage.server.server_connection.counts["unclaimed_notification"] == 2


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"method": "notifications/x/y"}, ("notifications/x/y", b"")),
        (
            {"method": "notifications/elicitation/complete", "params": {"elicitationId": "e"}},
            ("notifications/elicitation/complete", b'{"elicitationId": "e"}'),
        ),
    ],
)
async def test_notifications_that_capd_does_not_know_are_passed_on_as_they_are(
    autojump_clock: MockClock, message: Json, expected: tuple[str, bytes]
) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)

        await stage.server.say(message)

        assert a.told == [expected]


async def test_a_changed_list_is_told_to_every_session_that_has_the_server(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a, b, gone = Editor("a"), Editor("b"), Editor("c")
        stage.hold(a, b, gone)
        stage.server.instance.leave(gone.session)

        for what in ("tools", "prompts", "resources"):
            await stage.server.say({"method": f"notifications/{what}/list_changed"})
            await trio.sleep(GATHERED_FOR)
            await wait_all_tasks_blocked()

        told = [(f"notifications/{what}/list_changed", b"") for what in ("prompts", "resources")]
        assert (a.told, b.told, gone.told) == (told, told, [])
        assert stage.server.tools_changed == 1


@pytest.mark.parametrize("what", ["prompts", "resources"])
async def test_changes_that_come_together_are_told_once_and_those_of_a_storm_now_and_then(
    autojump_clock: MockClock, what: str
) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)
        announced = {"method": f"notifications/{what}/list_changed"}
        await stage.server.say(*[announced] * 50)
        await trio.sleep(60)
        together = len(a.told)

        for _ in range(100):
            await stage.server.say(announced)
            await trio.sleep(0.1)
        await trio.sleep(60)

        # Ten seconds of it at one in 2.1, and one for what came last.
        assert (together, len(a.told) - together) == (1, 6)


async def test_a_list_that_is_asked_for_before_its_change_is_told_is_the_changed_one(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a")
        stage.hold(a)
        stage.server.offer(prompts={})
        stage.server.answer(
            "prompts/list", {"prompts": [{"name": "a"}]}, {"prompts": [{"name": "b"}]}
        )
        before = await stage.server.instance.listings.entries("prompts")

        await stage.server.say({"method": "notifications/prompts/list_changed"})
        after = await stage.server.instance.listings.entries("prompts")

        assert (list(before), list(after), a.told) == (["a"], ["b"], [])


@pytest.mark.parametrize(
    "wrong",
    [
        {"method": "notifications/progress", "params": []},
        {"method": "notifications/progress", "params": {"progressToken": {}}},
        {"method": "notifications/message", "params": 5},
        {"method": "notifications/resources/updated", "params": {}},
        {"method": "notifications/resources/updated"},
        {"method": "notifications/cancelled"},
        {"method": "notifications/subscriptions/acknowledged", "params": {"_meta": []}},
    ],
)
async def test_a_notification_that_is_none_costs_nothing(
    autojump_clock: MockClock, wrong: Json
) -> None:
    async with staged() as stage:
        a = Editor("a", EVERYTHING)
        stage.hold(a)

        await stage.server.say(wrong, {"id": 1, "method": "ping"})

        assert stage.server.server_connection.counts["malformed_notification"] == 1
        assert (a.told, len(stage.server.answered())) == ([], 1)


async def test_a_task_is_told_to_those_who_listen_for_it_and_to_nobody_else(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a, b = Editor("a", EVERYTHING), Editor("b", EVERYTHING)
        stage.hold(a, b)
        stage.server.server_connection.server_messages.watchers["t-1"] = {a.session: a}
        meta = {"io.modelcontextprotocol/subscriptionId": 9}

        for task in ("t-1", "t-2"):
            params = {"taskId": task, "status": "working", "_meta": meta}
            await stage.server.say({"method": "notifications/tasks", "params": params})

        told = [(method, json.loads(params)) for method, params in a.told]
        assert told == [("notifications/tasks", {"taskId": "t-1", "status": "working"})]
        assert b.told == []
        assert stage.server.server_connection.counts["unclaimed_notification"] == 1


async def test_a_question_in_the_state_of_a_task_is_labelled_or_not_told(
    autojump_clock: MockClock,
) -> None:
    async with staged() as stage:
        a = Editor("a", EVERYTHING)
        stage.hold(a)
        stage.server.server_connection.server_messages.watchers["t-1"] = {a.session: a}

        for field in ("colour", "password"):
            form = {"message": "which?", "requestedSchema": {"properties": {field: {}}}}
            asks = {"q": {"method": "elicitation/create", "params": form}}
            params = {"taskId": "t-1", "status": "input_required", "inputRequests": asks}
            await stage.server.say({"method": "notifications/tasks", "params": params})

        ((_, told),) = a.told
        message = json.loads(told)["inputRequests"]["q"]["params"]["message"]
        assert message.endswith("] which?")
        assert stage.server.server_connection.counts["refused_question"] == 1
