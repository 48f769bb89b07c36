"""A server has one subscription for all sessions that want it, in either generation."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.servers.subscriptions import ACKNOWLEDGE_PATIENCE, LISTEN_AGAIN
from capd.core.protocol.outcomes import ServerError
from line_server import Editor, Json, LineServer, serving

URI = "note://a"
NO: Json = {"error": {"code": -32002, "message": "no such resource"}}


def updated(uri: str = URI, stream: int | None = None) -> Json:
    params: Json = {"uri": uri}
    if stream is not None:
        params["_meta"] = {"io.modelcontextprotocol/subscriptionId": stream}
    return {"method": "notifications/resources/updated", "params": params}


NEWS = ("notifications/resources/updated", b'{"uri": "note://a"}')


class Outcome:
    """The outcome of something that runs in its own task."""

    def __init__(self, act: Callable[[], Awaitable[bytes]]) -> None:
        self.ends: list[object] = []
        self.scope = trio.CancelScope()
        self._act = act

    async def run(self) -> None:
        with self.scope:
            try:
                self.ends.append(await self._act())
            except ServerError as error:
                self.ends.append(error.error)


def uris(server: LineServer, method: str) -> list[str]:
    return [each["params"]["uri"] for each in server.asked(f"resources/{method}")]


def filters(server: LineServer) -> list[Json]:
    return [each["params"]["notifications"] for each in server.asked("subscriptions/listen")]


def cancelled(server: LineServer) -> list[int]:
    return [each["params"]["requestId"] for each in server.asked("notifications/cancelled")]


async def acknowledge(server: LineServer, at: int = -1) -> int:
    """Acknowledge one of the streams; return its id."""
    listen = server.asked("subscriptions/listen")[at]
    meta = {"io.modelcontextprotocol/subscriptionId": listen["id"]}
    params = {"notifications": listen["params"]["notifications"], "_meta": meta}
    await server.say({"method": "notifications/subscriptions/acknowledged", "params": params})
    number: int = listen["id"]
    return number


# Handshake generation


async def test_two_sessions_share_a_subscription_and_both_hear(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.answer("resources/subscribe", {"x": 1})
        server.answer("resources/unsubscribe", {})
        subscriptions = server.instance.subscriptions
        a, b, other = Editor("a"), Editor("b"), Editor("c")
        for each in (a, b, other):
            server.instance.join(each)

        results = [await subscriptions.subscribe(URI, each) for each in (a, b)]
        await server.say(updated())
        await subscriptions.unsubscribe(URI, a.session)
        kept = uris(server, "unsubscribe")
        await subscriptions.unsubscribe(URI, b.session)

        assert results == [b'{"x": 1}', b"{}"]
        assert uris(server, "subscribe") == [URI]
        assert (a.told, b.told, other.told) == ([NEWS], [NEWS], [])
        assert (kept, uris(server, "unsubscribe")) == ([], [URI])


async def test_a_session_that_leaves_is_unsubscribed_unless_another_wants_it(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        for method in ("subscribe", "unsubscribe"):
            server.answer(f"resources/{method}", {})
        a, b = Editor("a"), Editor("b")
        for each in (a, b):
            server.instance.join(each)
            await server.instance.subscriptions.subscribe(URI, each)
        await server.instance.subscriptions.subscribe("note://b", b)

        server.instance.leave(a.session)
        await wait_all_tasks_blocked()
        first = uris(server, "unsubscribe")
        server.instance.leave(b.session)
        await wait_all_tasks_blocked()

        assert (first, uris(server, "unsubscribe")) == ([], [URI, "note://b"])
        assert server.server_connection.server_messages.subscribers == {}


async def test_a_refused_subscription_is_refused_to_all_who_asked_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        subscriptions = server.instance.subscriptions
        a, b = Editor("a"), Editor("b")
        outcomes = [Outcome(partial(subscriptions.subscribe, URI, each)) for each in (a, b)]
        for outcome in outcomes:
            nursery.start_soon(outcome.run)
            await wait_all_tasks_blocked()
        server.answer("resources/subscribe", NO)
        await server.say({"id": server.asked("resources/subscribe")[0]["id"], **NO})

        assert [outcome.ends for outcome in outcomes] == [
            [b'{"code": -32002, "message": "no such resource"}']
        ] * 2
        assert server.server_connection.server_messages.subscribers == {}


async def test_a_subscription_that_was_cancelled_is_undone_at_the_server(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.answer("resources/unsubscribe", {})
        outcome = Outcome(lambda: server.instance.subscriptions.subscribe(URI, Editor("a")))
        nursery.start_soon(outcome.run)
        await wait_all_tasks_blocked()

        outcome.scope.cancel()
        await wait_all_tasks_blocked()

        assert uris(server, "unsubscribe") == [URI]
        assert server.server_connection.server_messages.subscribers == {}


async def test_news_of_a_part_reach_who_subscribed_to_the_whole_once(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.answer("resources/subscribe", {})
        a = Editor("a")
        server.instance.join(a)
        for uri in ("note://a", "note://a/b"):
            await server.instance.subscriptions.subscribe(uri, a)

        await server.say(updated("note://a/b/c"), updated("note://ab"))

        assert a.told == [("notifications/resources/updated", b'{"uri": "note://a/b/c"}')]


async def test_a_server_logs_what_the_session_that_wants_most_wants(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(logging={})
        server.answer("logging/setLevel", {})
        a, b = Editor("a"), Editor("b")
        a.log_level, b.log_level = "error", "info"

        for each in (a, b):
            server.instance.join(each)
            await wait_all_tasks_blocked()
        await server.instance.subscriptions.follow_level()

        levels = [each["params"]["level"] for each in server.asked("logging/setLevel")]
        assert levels == ["error", "info"]


async def test_a_level_that_a_server_refused_is_asked_for_again(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(logging={})
        server.answer("logging/setLevel", {"error": {"code": -32603, "message": "not now"}})
        a = Editor("a")
        a.log_level = "info"
        server.instance.join(a)
        await wait_all_tasks_blocked()
        asked = len(server.asked("logging/setLevel"))

        with pytest.raises(ServerError):
            await server.instance.subscriptions.follow_level()

        assert len(server.asked("logging/setLevel")) == asked + 1


# Stateless generation


async def test_a_stream_is_opened_for_the_lists_that_a_server_tells_of(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        changes: Json = {"listChanged": True}
        server.offer(stateless=True, tools=changes, prompts={"listChanged": False}, resources={})
        server.instance.join(Editor("a"))
        await wait_all_tasks_blocked()

        assert filters(server) == [{"toolsListChanged": True}]


async def test_a_subscription_is_there_when_its_stream_is_acknowledged(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.offer(stateless=True, resources={})
        a = Editor("a")
        server.instance.join(a)
        outcome = Outcome(lambda: server.instance.subscriptions.subscribe(URI, a))
        nursery.start_soon(outcome.run)
        await wait_all_tasks_blocked()
        before = list(outcome.ends)
        stream = await acknowledge(server)
        await server.say(updated(stream=stream))

        assert (before, outcome.ends) == ([], [b"{}"])
        assert filters(server) == [{"resourceSubscriptions": [URI]}]
        # The stream is capd's own, and none of its client's.
        assert a.told == [("notifications/resources/updated", b'{"uri":"note://a"}')]


async def test_the_next_stream_is_open_before_the_last_one_is_closed(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.offer(stateless=True, tools={"listChanged": True}, resources={})
        a = Editor("a")
        server.instance.join(a)
        await wait_all_tasks_blocked()
        first = await acknowledge(server)
        outcome = Outcome(lambda: server.instance.subscriptions.subscribe(URI, a))
        nursery.start_soon(outcome.run)
        await wait_all_tasks_blocked()
        before = cancelled(server)
        await acknowledge(server)

        assert (before, cancelled(server)) == ([], [first])
        assert filters(server) == [
            {"toolsListChanged": True},
            {"toolsListChanged": True, "resourceSubscriptions": [URI]},
        ]


async def test_the_stream_ends_with_its_last_subscriber(autojump_clock: MockClock) -> None:
    async with serving() as (server, nursery):
        server.offer(stateless=True, resources={})
        a = Editor("a")
        server.instance.join(a)
        nursery.start_soon(server.instance.subscriptions.subscribe, URI, a)
        await wait_all_tasks_blocked()
        stream = await acknowledge(server)

        server.instance.leave(a.session)
        await wait_all_tasks_blocked()

        assert cancelled(server) == [stream]
        assert len(filters(server)) == 1


async def test_a_server_that_refuses_a_subscription_keeps_the_stream_that_it_has(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.offer(stateless=True, tools={"listChanged": True}, resources={})
        a = Editor("a")
        server.instance.join(a)
        await wait_all_tasks_blocked()
        await acknowledge(server)
        server.answer("subscriptions/listen", NO)
        outcome = Outcome(lambda: server.instance.subscriptions.subscribe(URI, a))
        nursery.start_soon(outcome.run)
        await trio.sleep(60)

        assert outcome.ends == [b'{"code": -32002, "message": "no such resource"}']
        assert (cancelled(server), len(filters(server))) == ([], 2)
        assert server.server_connection.server_messages.subscribers == {}


async def test_a_stream_that_is_never_acknowledged_counts_as_open_after_a_while(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(stateless=True, resources={})
        a = Editor("a")
        server.instance.join(a)
        started_at = trio.current_time()

        result = await server.instance.subscriptions.subscribe(URI, a)

        assert (result, trio.current_time() - started_at) == (b"{}", ACKNOWLEDGE_PATIENCE)


async def test_a_stream_that_ends_is_opened_again_by_and_by(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(stateless=True, tools={"listChanged": True})
        server.instance.join(Editor("a"))
        await wait_all_tasks_blocked()
        stream = await acknowledge(server)

        await server.say({"id": stream, "result": {"resultType": "complete"}})
        at_once = len(filters(server))
        await trio.sleep(LISTEN_AGAIN + 0.1)

        assert (at_once, len(filters(server))) == (1, 2)


@pytest.mark.parametrize("answer", [NO, {"resultType": "complete"}])
async def test_a_server_that_wants_no_stream_is_not_asked_for_ever(
    autojump_clock: MockClock, answer: Json
) -> None:
    async with serving() as (server, _):
        server.offer(stateless=True, tools={"listChanged": True})
        server.answer("subscriptions/listen", answer)
        server.instance.join(Editor("a"))

        await trio.sleep(3600)

        assert len(filters(server)) == 1


# What an instance before this one told


async def test_a_session_that_comes_with_subscriptions_has_them_renewed_and_hears_of_each(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.answer("resources/subscribe", {})
        a, b, other = Editor("a"), Editor("b"), Editor("c")

        server.instance.join(a, [URI, "note://b"])
        server.instance.join(b, [URI])
        server.instance.join(other)
        await wait_all_tasks_blocked()

        assert sorted(uris(server, "subscribe")) == [URI, "note://b"]
        changed = "notifications/resources/updated"
        assert sorted(a.told) == [
            (changed, b'{"uri":"note://a"}'),
            (changed, b'{"uri":"note://b"}'),
        ]
        assert (b.told, other.told) == ([(changed, b'{"uri":"note://a"}')], [])
        a.told.clear()
        await server.say(updated())
        assert a.told == [NEWS]


async def test_a_renewal_that_is_refused_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.answer("resources/subscribe", NO)
        a = Editor("a")

        server.instance.join(a, [URI])
        await trio.sleep(60)

        assert (uris(server, "subscribe"), uris(server, "unsubscribe")) == ([URI], [])
        assert (a.told, server.server_connection.server_messages.subscribers) == ([], {})


async def test_a_session_that_leaves_before_its_renewal_is_not_subscribed(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        a = Editor("a")
        await wait_all_tasks_blocked()

        server.instance.join(a, [URI])
        server.instance.leave(a.session)
        await wait_all_tasks_blocked()

        assert (
            uris(server, "subscribe"),
            server.server_connection.server_messages.subscribers,
        ) == ([], {})


async def test_a_stateless_servers_stream_carries_what_is_renewed(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(stateless=True, resources={})
        a = Editor("a")

        server.instance.join(a, [URI])
        await wait_all_tasks_blocked()
        stream = await acknowledge(server)
        await server.say(updated(stream=stream))

        assert filters(server) == [{"resourceSubscriptions": [URI]}]
        assert a.told == [("notifications/resources/updated", b'{"uri":"note://a"}')] * 2
