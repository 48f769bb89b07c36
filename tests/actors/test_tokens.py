"""The tokens of sessions are counted in the background and reported once they are known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio
from trio.testing import MockClock

from capd.actors.session.token_accounting import DEBOUNCE
from capd.adapters.tokens.counted_texts import NotCountedError
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules

from .fakes import Json, tool
from .test_single_tools import known, selected
from .world import World, running_world


class Lengths:
    """A scripted tokenizer: every byte that is not a space is a token."""

    def __init__(self) -> None:
        self.journal: list[list[bytes]] = []
        self.problem = ""
        self.hated = b""
        """What `problem` is with; empty is everything."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        self.journal.append(texts)
        counts = {text: length(text) for text in texts}
        if self.problem and any(self.hated in text for text in texts):
            error = NotCountedError(self.problem)
            error.counts = {t: n for t, n in counts.items() if self.hated not in t}
            raise error
        return counts


def length(text: str | bytes) -> int:
    encoded = text if isinstance(text, bytes) else text.encode()
    return len(encoded.replace(b" ", b""))


def size(definitions: list[Json]) -> int:
    return sum(length(json.dumps(each)) for each in definitions)


async def tokens(world: World) -> list[dict[str, Any]]:
    """Return every session's tokens, once all is counted; threads take their time."""
    control = await world.controller()
    while True:
        found: list[dict[str, Any]] = (await control.result("tokens"))["sessions"]
        if not any(each["counting"] for each in found):
            return found
        await trio.sleep(0.01)


async def counted(world: World, at_least: int = -1_000_000) -> tuple[int, int]:
    """Wait for the only session's token counts; return its costs and savings."""
    while True:
        (entry,) = await world.sessions()
        surface, saved = entry.tokens, entry.tokens_saved
        if surface is not None and saved is not None and saved >= at_least:
            return surface, saved
        await trio.sleep(0.1)


async def states(world: World) -> list[tuple[int | None, str]]:
    return [(entry.tokens, entry.tokens_state) for entry in await world.sessions()]


async def test_what_is_sent_is_said_to_be_counting_until_it_is_counted_by_itself(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        client = await world.session("s")
        before = await states(world)
        listed = (await client.result("tools/list"))["tools"]
        at_once = await states(world)

        surface, saved = await counted(world)

        (session,) = await tokens(world)
        assert (before, at_once) == ([(None, "not_listed")], [(None, "counting")])
        assert await states(world) == [(surface, "counted")]
        assert (session["surface"]["tokens"], session["net"]) == (surface, saved)
        assert session["surface"]["list"] == size(listed)


async def test_what_was_counted_is_not_counted_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    counts = Lengths()
    async with running_world(tmp_path, counts=counts) as world:
        client = await world.session("s")
        await client.tools()
        await counted(world)
        asked = len(counts.journal)

        await client.tools()
        await trio.sleep(100 * DEBOUNCE)

        assert len(counts.journal) == asked


async def test_a_tokenizer_that_fails_is_said_and_tried_again_when_somebody_asks(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    counts = Lengths()
    counts.problem = "Tokens are not counted: reinstall capd"
    async with running_world(tmp_path, counts=counts) as world:
        client, control = await world.session("s"), await world.controller()
        await client.tools()
        failed = await control.result("tokens")
        uncounted = await states(world)
        counts.problem = ""

        (session,) = await tokens(world)

        assert (failed["problem"], uncounted) == (
            "Tokens are not counted: reinstall capd",
            [(None, "not_counted")],
        )
        assert failed["sessions"][0]["surface"]["tokens"] is None
        assert session["surface"]["tokens"] > 0
        assert (await control.result("tokens"))["problem"] == ""


async def test_a_text_that_cannot_be_counted_is_its_sessions_alone(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    counts = Lengths()
    counts.problem, counts.hated = "Tokens are not counted: it took too long", b"evil"
    async with running_world(tmp_path, counts=counts) as world:
        world.machine.scripts["alpha"].tools = [tool("evil")]
        first, second = await world.session("first"), await world.session("second")
        await first.capability("enable", "alpha")
        listed = (await second.result("tools/list"))["tools"]
        await first.tools()
        control = await world.controller()

        found = (await control.result("tokens"))["sessions"]

        lists = {each["key"]: each["surface"]["list"] for each in found}
        assert lists == {"first": None, "second": size(listed)}


async def test_all_tools_are_what_a_plain_aggregator_lists_under_the_same_policy(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(mode="pass-through", everyone=PolicyRules("[policy]", deny=("*:die",)))
    async with running_world(tmp_path, rules=rules, counts=Lengths()) as world:
        await known(world, "alpha", "beta")
        world.finder._sets.users.unlisted = {}
        client = await world.session("s")
        listed = (await client.result("tools/list"))["tools"]

        (session,) = await tokens(world)

        assert [each["name"] for each in listed] == ["alpha__echo", "beta__echo"]
        assert session["all_tools"] == {"tools": 2, "tokens": size(listed), "unlisted": []}
        assert (session["surface"]["tokens"], session["saved"]) == (size(listed), 0)


async def test_servers_that_were_never_asked_are_named(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        await known(world, "alpha")
        client = await world.session("s")
        await client.tools()

        (session,) = await tokens(world)

        assert session["all_tools"]["tools"] == 2
        assert "beta" in session["all_tools"]["unlisted"]
        assert "alpha" not in session["all_tools"]["unlisted"]


async def test_a_server_that_lists_more_makes_all_tools_dearer_and_the_status_follows(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        await known(world, "alpha")
        client = await world.session("s")
        await client.tools()
        surface, before = await counted(world)

        world.machine.scripts["beta"].tools = [tool("more")]
        await known(world, "beta")

        more = size([tool("beta__more")])
        assert await counted(world, at_least=before + 1) == (surface, before + more)


async def test_a_suggestion_counts_where_a_client_asked_for_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        world.registry._profile = replace(world.registry._profile, threshold=1.5)
        client = await world.session("s")
        turn = await client.result("capd/turn", text="alpha things please")

        (session,) = await tokens(world)

        turns = {"count": 1, "tokens": length(turn["suggestion"]), "uncounted": 0}
        assert session["added"]["turns"] == turns


async def test_the_words_of_a_turn_count_where_they_reach_a_model(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        client, control = await world.session("s"), await world.controller()
        await client.tools()
        hooked = await control.result("hook", text="alpha things", project=str(world.project))
        said, _ = await client.call("capd_turn", prompt="beta things")
        # From the command line: a person reads it.
        await control.result("turn", text="both of them", session="s")

        (session,) = await tokens(world)

        told = json.loads(said)["hookSpecificOutput"]["additionalContext"]
        assert hooked["context"].startswith("capd switched on 'alpha'")
        assert session["added"]["turns"] == {
            "count": 2,
            "tokens": length(hooked["context"]) + length(told),
            "uncounted": 0,
        }


async def test_a_search_counts_for_the_client_that_made_it_and_not_for_the_command_line(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        await known(world, "alpha")
        client, control = await world.session("s"), await world.controller()
        await client.tools()
        said = await selected(client, "alpha__echo")
        arguments = {"query": "select:alpha__die"}
        await control.result("call", name="tool_search", arguments=arguments, session="s")

        (session,) = await tokens(world)

        searches = {"count": 1, "tokens": length(said), "uncounted": 0}
        assert session["added"]["searches"] == searches


async def test_a_client_that_takes_its_session_up_again_goes_on_with_its_account(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        first = await world.session("s")
        await first.tools()
        await first.capability("enable", "alpha")

        again = await world.session("s", resume=first.welcome["resume"])
        listed = (await again.result("tools/list"))["tools"]

        (session,) = await tokens(world)
        came = [each for each in listed if each["name"].startswith("alpha__")]
        assert session["added"]["list_changes"] == {
            "count": 1,
            "tokens": size(came),
            "uncounted": 0,
        }
        assert session["added"]["answers"]["count"] == 1


async def test_a_stateless_client_is_counted_by_the_same_bytes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, counts=Lengths()) as world:
        client = await world.connected()
        await client.hello(session="s", cwd=str(world.project))
        world.nursery.start_soon(client.listen)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "editor", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        discovered = await client.result("server/discover", _meta=meta)
        listed = (await client.result("tools/list", _meta=meta))["tools"]

        (session,) = await tokens(world)

        assert session["surface"]["list"] == size(listed)
        assert session["surface"]["instructions"] == length(discovered["instructions"])
