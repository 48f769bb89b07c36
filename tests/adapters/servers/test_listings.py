"""A server's lists are complete and cached until they change; an outdated one is never used."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.adapters.servers.listings import SLOW_PAUSE, list_tools
from capd.adapters.servers.negotiation import HandshakeError
from capd.adapters.servers.server_lines import MOST_PAGE_VALUES
from capd.core.definitions.entries import MOST_ENTRIES
from line_server import Editor, Json, LineServer, serving

UNKNOWN: Json = {"error": {"code": -32601, "message": "Method not found"}}
BROKEN: Json = {"error": {"code": -32603, "message": "oops"}}


def prompts(*names: str) -> Json:
    return {"prompts": [{"name": name} for name in names]}


async def entries(server: LineServer, kind: str = "prompts") -> list[bytes]:
    return list((await server.instance.listings.entries(kind)).values())


async def test_a_list_is_asked_for_once_and_is_the_bytes_that_the_server_wrote(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("prompts/list", prompts("a", "\u00e9"))

        found = [await entries(server) for _ in range(3)]

        assert found == [[b'{"name": "a"}', b'{"name": "\\u00e9"}']] * 3
        assert len(server.asked("prompts/list")) == 1


async def test_every_page_is_in_it(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        first, second = {**prompts("a"), "nextCursor": "x"}, prompts("b")
        server.answer("prompts/list", first, second)

        found = await entries(server)

        assert found == [b'{"name": "a"}', b'{"name": "b"}']
        assert [each["params"] for each in server.asked("prompts/list")] == [{}, {"cursor": "x"}]


async def test_a_cursor_that_comes_again_ends_the_list(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("prompts/list", {**prompts("a"), "nextCursor": "x"})

        assert await entries(server) == [b'{"name": "a"}']
        assert len(server.asked("prompts/list")) == 2


async def test_an_empty_cursor_is_none(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("prompts/list", {**prompts("a"), "nextCursor": ""}, BROKEN)

        assert await entries(server) == [b'{"name": "a"}']


@pytest.mark.parametrize("ttl", [10**400, -(10**400), 1e300], ids=["huge", "negative", "large"])
async def test_a_list_that_is_valid_for_an_impossible_time_is_a_list(
    autojump_clock: MockClock, ttl: float
) -> None:
    async with serving() as (server, _):
        server.offer(stateless=True, tools={})
        server.answer("tools/list", {"tools": [], "ttlMs": ttl})

        assert await list_tools(server.server_connection) == []


async def test_a_list_has_an_end(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        names = [f"p{number}" for number in range(MOST_ENTRIES["prompts"] + 5)]
        server.answer("prompts/list", prompts(*names))

        assert len(await entries(server)) == MOST_ENTRIES["prompts"]
        assert server.server_connection.findings["prompts"].startswith(
            "the first 1000 of its prompts"
        )


async def test_two_sessions_that_list_at_once_cost_one_question(autojump_clock: MockClock) -> None:
    async with serving() as (server, nursery):
        server.offer(prompts={})
        found: list[list[bytes]] = []

        async def listed() -> None:
            found.append(await entries(server))

        nursery.start_soon(listed)
        nursery.start_soon(listed)
        await wait_all_tasks_blocked()
        (asked,) = server.asked("prompts/list")
        await server.say({"id": asked["id"], "result": prompts("a")})

        assert found == [[b'{"name": "a"}']] * 2


async def test_one_that_gives_up_leaves_the_other_its_list(autojump_clock: MockClock) -> None:
    async with serving() as (server, nursery):
        server.offer(prompts={})
        found: list[list[bytes]] = []

        async def listed() -> None:
            found.append(await entries(server))

        with trio.move_on_after(1):
            await wait_all_tasks_blocked()
            nursery.start_soon(listed)
            await entries(server)
        await wait_all_tasks_blocked()
        for asked in server.asked("prompts/list"):
            await server.say({"id": asked["id"], "result": prompts("a")})

        assert found == [[b'{"name": "a"}']]


async def test_a_list_that_changes_while_it_is_fetched_is_fetched_again(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, nursery):
        server.offer(prompts={})
        nursery.start_soon(entries, server)
        await wait_all_tasks_blocked()
        (asked,) = server.asked("prompts/list")
        await server.say(
            {"method": "notifications/prompts/list_changed"},
            {"id": asked["id"], "result": prompts("old")},
        )
        server.answer("prompts/list", prompts("new"))

        assert await entries(server) == [b'{"name": "new"}']


async def test_a_changed_list_of_resources_is_fetched_again_with_its_templates(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(resources={}, prompts={})
        server.answer("resources/list", {"resources": []})
        server.answer("resources/templates/list", {"resourceTemplates": []})
        server.answer("prompts/list", prompts())
        for kind in ("resources", "resources/templates", "prompts"):
            await entries(server, kind)
        await server.say({"method": "notifications/resources/list_changed"})

        for kind in ("resources", "resources/templates", "prompts"):
            await entries(server, kind)

        asked = [len(server.asked(f"{kind}/list")) for kind in ("resources", "prompts")]
        assert (asked, len(server.asked("resources/templates/list"))) == ([2, 1], 2)


async def test_a_server_is_not_asked_for_what_it_does_not_offer(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})

        found = [await entries(server, kind) for kind in ("resources", "resources/templates")]

        assert (found, server.told) == ([[], []], [])


@pytest.mark.parametrize(("error", "asked"), [(UNKNOWN, 1), (BROKEN, 2), ({"prompts": 5}, 2)])
async def test_a_list_that_cannot_be_had_is_empty_and_asked_for_again_if_that_may_help(
    autojump_clock: MockClock, error: Json, asked: int
) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("prompts/list", error)

        found = [await entries(server), await entries(server)]

        assert (found, len(server.asked("prompts/list"))) == ([[], []], asked)


async def test_a_server_that_gives_no_list_costs_its_time_once_in_a_while(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})

        waits = []
        for _ in range(3):
            began = trio.current_time()
            assert await entries(server) == []
            waits.append(trio.current_time() - began)
        await trio.sleep(SLOW_PAUSE)
        server.answer("prompts/list", prompts("a"))

        assert waits == [30.0, 0.0, 0.0]
        assert await entries(server) == [b'{"name": "a"}']


async def test_a_list_that_comes_after_somebody_left_is_told_of(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        a = Editor("a")
        server.instance.join(a)
        server.offer(prompts={})

        early = await server.instance.listings.entries("prompts", 5.0)
        (asked,) = server.asked("prompts/list")
        await server.say({"id": asked["id"], "result": prompts("a")})
        await trio.sleep(1)

        assert early == {}
        assert a.told == [("notifications/prompts/list_changed", b"")]
        assert await entries(server) == [b'{"name": "a"}']
        assert len(server.asked("prompts/list")) == 1


async def test_a_page_that_is_too_much_to_be_read_is_no_list(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("prompts/list", {"prompts": [0] * (MOST_PAGE_VALUES + 2)})

        assert await entries(server) == []


async def test_a_server_of_prompts_alone_has_no_tools(autojump_clock: MockClock) -> None:
    async with serving() as (server, _):
        server.offer(prompts={})
        server.answer("tools/list", UNKNOWN)

        assert await list_tools(server.server_connection) == []


async def test_a_server_that_fails_at_the_tools_that_it_offers_is_told_of(
    autojump_clock: MockClock,
) -> None:
    async with serving() as (server, _):
        server.offer(tools={})
        server.answer("tools/list", BROKEN)

        with pytest.raises(HandshakeError, match="oops"):
            await list_tools(server.server_connection)


@pytest.mark.parametrize(
    ("stateless", "ttl", "good_for"),
    [
        (True, 10**12, 3600.0),
        (True, 60_000, 60.0),
        (True, 0, 2.0),
        (True, -5, 2.0),
        (True, None, 3600.0),
        (True, "soon", 3600.0),
        (True, True, 3600.0),
        (False, 0, float("inf")),
    ],
)
async def test_a_list_of_the_stateless_generation_is_good_for_its_time_and_an_hour_at_most(
    autojump_clock: MockClock, *, stateless: bool, ttl: object, good_for: float
) -> None:
    async with serving() as (server, _):
        server.offer(stateless=stateless, prompts={})
        says = {} if ttl is None else {"ttlMs": ttl, "cacheScope": "public"}
        server.answer("prompts/list", {"prompts": [], **says})
        listings = server.instance.listings
        await listings.entries("prompts")

        await trio.sleep(min(good_for, 10_000) - 0.5)
        await listings.entries("prompts")
        before = len(server.asked("prompts/list"))
        await trio.sleep(1)
        await listings.entries("prompts")

        after = len(server.asked("prompts/list"))
        assert (before, after) == (1, 1 if good_for == float("inf") else 2)
