"""Each request goes to the server it names, even if several servers have similar names."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from .fakes import FakeProcess, Json, Script, tool
from .world import LINGER, Client, World, running_world

NO = {"error": {"code": -32002, "message": "not here"}}


class Library:
    """The behaviour of a server with prompts and resources, and the requests it got."""

    def __init__(self, *prompts: str, uris: tuple[str, ...] = ()) -> None:
        self.asked: list[tuple[str, str]] = []
        self.is_refusing = False
        self._prompts, self._uris = prompts, uris

    def answers(self, method: str, params: Json) -> Json:
        match method:
            case "prompts/list":
                return {"result": {"prompts": [{"name": name} for name in self._prompts]}}
            case "resources/list":
                uris = [{"uri": uri, "name": "r"} for uri in self._uris]
                return {"result": {"resources": uris}}
            case "prompts/get" | "resources/read" | "resources/subscribe":
                self.asked.append((method, params.get("name") or params["uri"]))
                return NO if self.is_refusing else {"result": {"by": self._prompts}}
            case "resources/unsubscribe":
                return {"result": {}}
            case _:
                return {"error": {"code": -32601, "message": "Method not found"}}


async def library(world: World, client: Client, name: str, library: Library) -> None:
    """Switch a server on that has a library."""
    offers: Json = {"tools": {}, "prompts": {}, "resources": {"subscribe": True}}
    world.machine.scripts[name] = Script(
        tools=[tool("same")], offers=offers, answers=library.answers
    )
    world.capability(name, name)
    await world.reload()
    said, is_error = await client.capability("enable", name)
    assert not is_error, said


async def prompts(client: Client) -> list[str]:
    return [each["name"] for each in (await client.result("prompts/list"))["prompts"]]


def changes(client: Client) -> list[str]:
    return [each["method"].split("/")[1] for each in client.heard if "list_changed" in str(each)]


async def test_a_server_that_is_switched_on_changes_every_list_that_it_is_in(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await library(world, client, "books", Library("p"))
        on = sorted(changes(client))
        client.heard.clear()
        await client.capability("enable", "alpha")
        plain = changes(client)
        client.heard.clear()

        await client.capability("disable", "books")

        assert on == ["prompts", "resources", "tools"]
        assert plain == ["tools"]
        assert sorted(changes(client)) == ["prompts", "resources", "tools"]


async def test_a_prompt_reaches_its_server_under_its_own_name(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        names = ("same", "Gr\u00fc\u00dfe \u4f60\u597d", "same!", "x" * 200)
        books = Library(*names)
        await library(world, client, "books", books)
        listed = await prompts(client)

        for name in listed:
            await client.result("prompts/get", name=name)

        assert books.asked == [("prompts/get", name) for name in names]
        assert len(set(listed)) == len(names)
        assert listed[0] == "books__same"
        assert all(name.isascii() and len(name) <= 64 for name in listed)


async def test_a_prompt_that_is_not_there_is_an_error_of_the_request(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        answer = await client.ask("prompts/get", name="none")

        text = "no prompt 'none' is on in this session"
        assert answer["error"] == {
            "code": -32602,
            "message": text,
            "data": {"code": "not_found"},
        }


async def test_of_one_uri_the_first_server_counts_and_the_next_is_asked_where_it_refuses(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        first, second = Library("a", uris=("n:1",)), Library("b", uris=("n:1", "n:2"))
        await library(world, client, "one", first)
        await library(world, client, "two", second)
        listed = (await client.result("resources/list"))["resources"]
        before = await client.result("resources/read", uri="n:1")
        first.is_refusing = True
        after = await client.result("resources/read", uri="n:1")
        second.is_refusing = True

        refused = await client.ask("resources/read", uri="n:1")

        assert [each["uri"] for each in listed] == ["n:1", "n:2"]
        assert (before, after) == ({"by": ["a"]}, {"by": ["b"]})
        assert refused["error"] == NO["error"]


async def test_a_session_that_is_found_again_starts_the_server_of_a_prompt_that_it_knew(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        books = Library("p", uris=("n:1",))
        await library(world, client, "books", books)
        (name,) = await prompts(client)
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await wait_all_tasks_blocked()
        again = await world.session("s")
        shown = await prompts(again)

        result = await again.result("prompts/get", name=name)

        assert (shown, result) == ([], {"by": ["p"]})
        assert await prompts(again) == [name]


async def test_a_session_that_is_found_again_reads_what_its_servers_have(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        books = Library("p", uris=("n:1",))
        await library(world, client, "books", books)
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await wait_all_tasks_blocked()
        again = await world.session("s")

        result = await again.result("resources/read", uri="n:1")

        assert result == {"by": ["p"]}


@pytest.mark.parametrize("lost_for", [0.0, LINGER + 1])
async def test_a_server_that_has_none_or_cannot_be_started_does_not_hide_the_next_one(
    autojump_clock: MockClock, tmp_path: Path, lost_for: float
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await library(world, client, "books", Library("p", uris=("n:1",)))
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await wait_all_tasks_blocked()
        await trio.sleep(lost_for)
        again = await world.session("s")
        world.machine.scripts["alpha"].exits_at_start = 3

        result = await again.result("resources/read", uri="n:1")

        assert result == {"by": ["p"]}


# Subscriptions outlive the server that they were made at


def news(client: Client) -> list[str]:
    method = "notifications/resources/updated"
    return [each["params"]["uri"] for each in client.heard if each.get("method") == method]


async def test_a_server_that_dies_is_started_for_who_subscribed_there_and_told_of_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await world.session("a"), await world.session("b")
        books = Library("p", uris=("n:1", "n:2"))
        await library(world, a, "books", books)
        await b.capability("enable", "books")
        await a.result("resources/subscribe", uri="n:1")
        await a.result("resources/subscribe", uri="n:2")
        await a.result("resources/unsubscribe", uri="n:2")
        books.asked.clear()

        world.machine.processes[-1].exit(1)
        await trio.sleep(10)

        assert books.asked == [("resources/subscribe", "n:1")]
        assert (news(a), news(b)) == (["n:1"], [])
        updated = {"method": "notifications/resources/updated", "params": {"uri": "n:1"}}
        await world.machine.processes[-1].say({"jsonrpc": "2.0", **updated})
        await trio.sleep(1)
        assert (news(a), news(b)) == (["n:1", "n:1"], [])


async def test_a_server_that_keeps_dying_is_not_started_for_ever_for_a_subscription(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await library(world, client, "books", Library("p", uris=("n:1",)))
        await client.result("resources/subscribe", uri="n:1")
        world.machine.scripts["books"].exits_at_start = 3

        world.machine.processes[-1].exit(1)
        await trio.sleep(3600)

        assert len(world.machine.specs) == 2


async def test_a_subscription_that_a_dead_server_could_not_keep_is_renewed_by_the_next_use(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        books = Library("p", uris=("n:1",))
        await library(world, client, "books", books)
        await client.result("resources/subscribe", uri="n:1")
        world.machine.scripts["books"].exits_at_start = 3
        world.machine.processes[-1].exit(1)
        await trio.sleep(100)
        world.machine.scripts["books"].exits_at_start = None
        books.asked.clear()

        await client.call("books__same")
        await trio.sleep(1)

        assert books.asked == [("resources/subscribe", "n:1")]


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_session_that_is_found_again_hears_of_what_its_own_client_subscribed_to(
    autojump_clock: MockClock, tmp_path: Path, goes_on: bool
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        books = Library("p", uris=("n:1",))
        await library(world, client, "books", books)
        await client.result("resources/subscribe", uri="n:1")
        await client.stream.aclose()
        # Nothing is left of it but its record, as after the death of the daemon.
        await trio.sleep(31 + LINGER)
        books.asked.clear()

        token = {"resume": client.welcome["resume"]} if goes_on else {}
        again = await world.session("s", **token)
        await trio.sleep(1)

        assert books.asked == ([("resources/subscribe", "n:1")] if goes_on else [])
        assert news(again) == (["n:1"] if goes_on else [])


# Half a surrogate pair, which JavaScript writes and Python's decoders refuse

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HALF = "cut \ud83d"


async def cut(process: FakeProcess, request: Json) -> None:
    # As a server writes it, with spaces that nobody else would write.
    result = rb'{"content":[{"type":"text", "text":"cut \ud83d"}]}'
    await process.say(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request["id"], result))


@pytest.mark.parametrize("meta", [{}, {"_meta": ENVELOPE}])
async def test_a_result_with_half_a_surrogate_pair_is_passed_on_as_it_was_written(
    autojump_clock: MockClock, tmp_path: Path, meta: Json
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = cut
        client = await world.session("s")
        other = await world.session("t")
        for each in (client, other):
            await each.capability("enable", "alpha")

        result = await client.result("tools/call", name="alpha__echo", arguments={}, **meta)

        complete = {"resultType": "complete"} if meta else {}
        assert result == {"content": [{"type": "text", "text": HALF}], **complete}
        assert await other.call("alpha__echo") == (HALF, False)
        [server] = await world.servers()
        assert (server.state, server.counts) == ("ready", {})


async def test_a_list_with_half_a_surrogate_pair_is_one_that_every_client_can_read(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].tools = [tool("echo", HALF), tool("plain")]
        client = await world.session("s")

        said, is_error = await client.capability("enable", "alpha")

        assert not is_error, said
        tools = (await client.result("tools/list"))["tools"]
        found = {each["name"]: each["description"] for each in tools}
        assert found["alpha__echo"] == "cut \N{REPLACEMENT CHARACTER}"
        assert "alpha__plain" in found


@pytest.mark.parametrize("error", [["capd", HALF], {"capd": 1, "message": HALF}, '"capd"'])
async def test_an_error_of_any_shape_ends_its_own_call_alone(
    autojump_clock: MockClock, tmp_path: Path, error: object
) -> None:
    async def refuse(process: FakeProcess, request: Json) -> None:
        await process.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = refuse
        client = await world.session("s")
        await client.capability("enable", "alpha")

        answer = await client.ask("tools/call", name="alpha__echo", arguments={})

        assert answer["error"]["code"] == -32603
        assert answer["error"]["data"] == {"server_error": error}
        assert [each.state for each in await world.servers()] == ["ready"]
