"""Tools that are not active can be found and called; only their own server is started."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import trio
from trio.testing import MockClock

from capd.adapters.clients.session_environment import NothingStored
from capd.core.servers.identity import server_identity
from capd.core.sessions.client_traits import ClientTraits, ModeSetting
from capd.core.sessions.domains import Domains
from capd.core.sessions.habits import Habit
from capd.core.sessions.policy import PolicyRules
from capd.core.sessions.session_rules import SessionRules
from capd_protos.types import (
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolDefinition,
    ToolName,
)

from .fakes import Script, tool
from .world import LINGER, OWN, Client, World, running_world

HEARSAY = {"editor": ClientTraits(names=("editor",), relists="never")}
NEVER = {"editor": ClientTraits(names=("editor",), relists="never", is_relists_set=True)}


async def known(world: World, *names: str) -> None:
    """Let the finder know these servers' tools, as after an earlier run."""
    for name in names:
        spec = ServerSpec(ServerName(name), "stdio", TapName("mine"), command=name)
        tools = [
            ToolDefinition(ToolName(each["name"]), json.dumps(each).encode())
            for each in world.machine.scripts[name].tools
        ]
        await world.tool_lists.keep(server_identity(spec), spec.name, "1", tools)
    world.finder._changed.set()
    # As after an earlier session, too: what a search needs is there.
    world.finder._in_use.set()
    while not all(
        any(s.spec.name == n for s in world.finder._sets.users.known.sources.values())
        for n in names
    ):
        await trio.sleep(0.05)


async def selected(client: Client, *names: str) -> str:
    said, is_error = await client.call("tool_search", query=f"select:{','.join(names)}")
    assert not is_error, said
    return said


async def test_a_search_answers_with_the_schema_and_switches_the_tool_on_in_one_round_trip(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")
        assert await client.tools() == OWN

        said = await selected(client, "alpha__echo")

        assert said == (
            "1 tool, the best first. All are on: call them by name.\n"
            '## alpha__echo\n{"type":"object"}'
        )
        assert await client.tools() == [*OWN, "alpha__echo"]
        assert client.list_changes == 1
        assert (world.machine.specs, await world.leases()) == ([], {})


async def test_a_found_tools_server_starts_with_its_first_call_and_ends_with_the_session(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")
        await selected(client, "alpha__echo")

        said = await client.call("alpha__echo", a=1)

        assert said == ('{"a": 1}', False)
        assert await world.leases() == {"alpha": ["s"]}
        assert await client.tools() == [*OWN, "alpha__echo"]
        await client.send({"capd": "goodbye"})
        await trio.sleep(LINGER + 1)
        assert world.machine.alive == []


async def test_a_single_tool_is_switched_off_and_its_server_let_go(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")
        for name in ("alpha__echo", "alpha:echo"):
            await client.call("alpha__echo", a=1)
            assert await world.leases() == {"alpha": ["s"]}

            said = await client.capability("disable", name)

            assert said == ("Tool 'alpha__echo' is off. No longer needed: alpha.", False)
            assert await client.tools() == OWN
            assert await world.leases() == {}


async def test_a_tool_of_a_capability_that_is_on_says_what_takes_it_away(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        before = await client.tools()

        said, is_error = await client.capability("disable", "alpha__echo")

        assert said.startswith("Tool 'alpha__echo' stays on with 'alpha'. Disable that to take")
        assert (is_error, await client.tools()) == (True, before)


async def test_a_hidden_tool_that_is_called_directly_works_and_is_on_afterwards(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")

        said = await client.call("alpha__echo", a=1)

        assert said == ('{"a": 1}', False)
        assert await client.tools() == [*OWN, "alpha__echo"]
        assert client.list_changes == 1


async def test_tool_call_passes_a_hidden_tools_result_on_as_it_is(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")
        direct = await client.result("tools/call", name="alpha__echo", arguments={"a": 1})

        called = {"name": "alpha__echo", "arguments": {"a": 1}}
        through = await client.result("tools/call", name="tool_call", arguments=called)

        assert through == direct


ASKING = {"editor": ClientTraits(names=("editor",), asks_per_tool=True)}
MARKED = {"name": "look", "inputSchema": {}, "annotations": {"readOnlyHint": True}}


async def test_a_client_that_asks_for_each_tool_calls_read_only_ones_by_a_tool_of_their_own(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(table=ASKING)) as world:
        world.machine.scripts["alpha"].tools.append(MARKED)
        await known(world, "alpha")
        client = await world.session("s")

        listed = await client.tools()
        looked = await client.call("tool_call_readonly", name="alpha__look", arguments={"a": 1})
        refused = await client.call("tool_call_readonly", name="alpha__echo", arguments={"a": 1})
        echoed = await client.call("tool_call", name="alpha__echo", arguments={"a": 1})

        assert listed == [*OWN[:3], "tool_call_readonly", *OWN[3:]]
        assert (looked[1], echoed) == (False, ('{"a": 1}', False))
        why = "alpha__echo is not marked read-only by its server. The call was not sent"
        assert refused == (f"{why}: call it with tool_call, which may ask the user.", True)


async def test_a_tool_that_its_running_server_marks_no_longer_is_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(table=ASKING)) as world:
        world.machine.scripts["alpha"].tools.append(MARKED)
        await known(world, "alpha")
        client = await world.session("s")
        await selected(client, "alpha__look")
        world.machine.scripts["alpha"].tools[-1] = {"name": "look", "inputSchema": {}}

        said, is_error = await client.call("tool_call_readonly", name="alpha__look", arguments={})

        assert is_error
        assert "is not marked read-only by its server. The call was not sent" in said


async def test_what_nobody_knows_is_answered_with_near_names_and_what_was_searched(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")

        said, is_error = await client.call("tool_call", name="alpha__ecko")

        assert is_error
        assert said.startswith(
            "No tool 'alpha__ecko' is on, and none of the 2 known tools has that name. Near names: "
            "alpha__echo"
        )
        assert "never asked for theirs (capd index)" in said


async def test_arguments_that_lead_to_nothing_are_answered_with_the_schema(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        said = [
            await client.call("tool_search", query="x", max_results=26),
            await client.call("tool_search", query=" "),
            await client.call("tool_search", query="x", detail="all"),
            await client.call("tool_call", arguments={}),
            await client.call("tool_call", name="a", arguments=[1]),
            await client.call("tool_call", name="tool_search"),
        ]

        assert all(is_error and '"properties"' in text for text, is_error in said)
        empty = "`query` is empty: say in a few words what the tool should do, or name tools with "
        assert [text.partition("\n")[0] for text, _ in said] == [
            "`max_results` is 26: it is from 1 to 25.",
            f"{empty}select:name,name.",
            "`detail` is 'all': it is one of names, summary, full.",
            "`name` is missing: which tool?",
            "`arguments` is not an object: write them as the tool's schema says.",
            "tool_search is capd's own: call it by its name.",
        ]


async def test_a_denied_tool_is_never_listed_named_or_called(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("alpha:d*",)))
    async with running_world(tmp_path, rules=rules) as world:
        await known(world, "alpha")
        client = await world.session("s")
        enabled, _ = await client.capability("enable", "alpha")

        answers = [
            await client.call("alpha__die"),
            await client.call("tool_call", name="alpha__die"),
        ]
        found, _ = await client.call("tool_search", query="die")

        why = "denied by policy: rule 'alpha:d*' in [policy]"
        assert enabled == (
            "Capability 'alpha' is on. Tools now available: alpha__echo. "
            "1 of its tools are denied by policy."
        )
        assert answers == [(f"alpha__die cannot be called: {why}.", True)] * 2
        assert "alpha__die" not in found
        assert why in found
        assert await client.tools() == [*OWN, "alpha__echo"]
        assert await selected(client, "alpha__die") == f"alpha__die is withheld: {why}."


async def test_a_tool_without_its_secret_says_which(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("alpha", "alpha", keys='env = { TOKEN = "{{ENV:TOKEN}}" }')
        await world.reload()
        spec = ServerSpec(
            ServerName("alpha"),
            "stdio",
            TapName("mine"),
            command="alpha",
            env={"TOKEN": "{{ENV:TOKEN}}"},
        )
        content = msgspec.json.encode(tool("echo"))
        listed = [ToolDefinition(ToolName("echo"), content)]
        await world.tool_lists.keep(server_identity(spec), spec.name, "1", listed)
        world.finder._changed.set()
        await trio.sleep(1)
        while "alpha__echo" not in world.finder._sets.users.known.sources:
            await trio.sleep(0.05)
        client = await world.session("s")

        refused = await client.call("alpha__echo")
        await client.send({"capd": "env", "env": {"TOKEN": "hush"}})
        allowed = await client.call("alpha__echo", a=1)

        needs = (
            "needs TOKEN, which this session does not have; "
            "tell the user to run `capd secret set TOKEN`"
        )
        assert refused == (f"alpha__echo cannot be called: {needs}.", True)
        assert allowed == ('{"a": 1}', False)


async def test_the_tool_that_was_used_longest_ago_makes_room_and_the_answer_says_so(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(tool_cap=2, mode="dynamic")) as world:
        await known(world, "alpha", "beta")
        client = await world.session("s")
        await selected(client, "alpha__echo")
        await selected(client, "alpha__die")
        await client.call("alpha__echo")

        said = await selected(client, "beta__echo")

        assert said.endswith("Switched off to make room: alpha__die.")
        assert await client.tools() == [*OWN, "alpha__echo", "beta__echo"]
        assert (await world.leases(), client.list_changes) == ({"alpha": ["s"]}, 3)


async def test_what_a_turn_evicts_stays_listed_until_the_next_one_and_works_meanwhile(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(tool_cap=1, mode="dynamic")) as world:
        await known(world, "alpha", "beta")
        client = await world.session("s")
        await selected(client, "alpha__echo")
        await client.result("capd/turn", text="hello there, my friend")
        await selected(client, "beta__echo")
        during = await client.tools()

        await client.result("capd/turn", text="and now for something else")

        assert during == [*OWN, "alpha__echo", "beta__echo"]
        assert await client.tools() == [*OWN, "beta__echo"]
        assert client.list_changes == 3
        assert await client.call("alpha__echo", a=1) == ('{"a": 1}', False)


async def test_a_session_of_single_tools_alone_finds_them_by_its_key(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")
        await selected(client, "alpha__echo")
        await client.send({"capd": "goodbye"})
        await client.is_closed.wait()
        await trio.sleep(LINGER * 3)

        again = await world.session("s")

        assert (again.welcome["resumed"], await again.tools()) == (True, [*OWN, "alpha__echo"])
        assert await again.call("alpha__echo", a=1) == ('{"a": 1}', False)


async def test_a_tool_that_its_server_has_no_longer_is_told_and_leaves_the_list(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        world.machine.scripts["alpha"] = Script(tools=[tool("other")])
        client = await world.session("s")

        said, is_error = await client.call("alpha__echo")

        assert (said, is_error) == (
            "alpha no longer offers echo. The call was not sent.",
            True,
        )
        assert await client.tools() == OWN
        await trio.sleep(LINGER + 1)
        assert (await world.leases(), world.machine.alive) == ({}, [])


async def test_a_client_that_never_lists_again_is_told_to_call_through_and_gets_one_list(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(table=NEVER)) as world:
        client = await world.session("s")
        before = await client.result("tools/list")

        said, _ = await client.capability("enable", "alpha")
        turn = await client.result("capd/turn", text="beta things please")

        assert said.endswith("They may not be on your list: call them with tool_call, name=...")
        assert turn["changed"]["added"] == ["beta__echo", "beta__die"]
        assert await client.result("tools/list") == before
        assert client.list_changes == 0
        through = await client.call("tool_call", name="beta__echo", arguments={"a": 1})
        assert through == ('{"a": 1}', False)
        (entry,) = await world.sessions()
        assert (entry.mode, entry.unlisted) == ("stable", 4)


async def test_what_only_the_table_says_of_a_client_is_asked_of_it_once_and_its_answer_counts(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(table=HEARSAY)) as world:
        silent = await world.session("silent", client={"name": "editor", "version": "1"})
        lists = await world.session("lists", client={"name": "editor", "version": "2"})
        for client in (silent, lists):
            await client.tools()
            await client.capability("list")
        await lists.tools()
        for client in (silent, lists):
            for text in ("hello there, you", "hello there again", "and once more"):
                await client.result("capd/turn", text=text)

        await world.session("third", client={"name": "editor", "version": "1"})
        await world.session("fourth", client={"name": "editor", "version": "2"})

        modes = {str(entry.key): entry.mode for entry in await world.sessions()}
        assert (modes["third"], modes["fourth"]) == ("stable", "dynamic")
        assert (silent.list_changes, lists.list_changes) == (1, 1)


async def test_a_client_that_was_seen_not_to_list_again_has_a_fixed_list_the_next_time(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("one")
        await client.tools()
        await client.capability("enable", "alpha")
        for text in ("hello there, you", "hello there again"):
            await client.result("capd/turn", text=text)

        second = await world.session("two")

        await second.capability("enable", "alpha")
        assert (await second.tools(), second.list_changes) == (OWN, 0)


class KeptHabits:
    """Habits in memory, with a journal of the saves."""

    problem = ""

    def __init__(self, *written: Habit) -> None:
        self.saved = [list(written)]

    async def load(self) -> list[Habit]:
        await trio.lowlevel.checkpoint()
        return self.saved[-1]

    async def save(self, habits: Sequence[Habit]) -> bool:
        await trio.lowlevel.checkpoint()
        self.saved.append(list(habits))
        return True


async def test_what_a_client_was_seen_to_do_is_known_to_the_next_daemon(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    kept = KeptHabits(Habit("editor", "2", relists=True))
    info = {"name": "editor", "version": "1"}
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with running_world(tmp_path / "a", habits=kept) as world:
        client = await world.session("one", client=info)
        await client.tools()
        await client.capability("enable", "alpha")
        for text in ("hello there, you", "hello there again"):
            await client.result("capd/turn", text=text)
        await trio.sleep(1)

    async with running_world(tmp_path / "b", habits=kept) as world:
        for name, version in (("two", "1"), ("three", "2")):
            await world.session(name, client={**info, "version": version})

        modes = {entry.key: entry.mode for entry in await world.sessions()}

    assert kept.saved[1:] == [[Habit("editor", "2", True), Habit("editor", "1", False)]]
    assert modes == {"two": "stable", "three": "dynamic"}


async def test_a_list_for_capds_own_use_is_no_habit_of_the_client(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        seen = (await client.result("capd/tools"))["tools"]

        assert [each["name"] for each in seen] == [*OWN, "alpha__echo", "alpha__die"]
        assert world.host.services.habits.habits.written == []
        assert not world.host._sessions[SessionKey("s")].session.view.has_listed


async def test_pinned_tools_are_listed_from_the_start_and_over_the_cap_they_are_refused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    table = {"editor": ClientTraits(names=("editor",), tool_limit=5)}
    rules = SessionRules(pins=("beta:*", "alpha__*"), table=table, mode="dynamic")
    async with running_world(tmp_path, rules=rules) as world:
        await known(world, "alpha", "beta")
        client = await world.session("s")

        listed = await client.tools()
        await client.capability("enable", "alpha")

        assert listed == [*OWN, "beta__echo", "beta__die"]
        assert await client.tools() == listed
        (entry,) = await world.sessions()
        assert entry.mode_reason == ("set by the user; 2 pins are over the 5 tools of a list")
        assert await client.call("beta__echo", a=1) == ('{"a": 1}', False)
        assert await client.call("alpha__echo", a=1) == ('{"a": 1}', False)


async def test_everything_is_listed_and_nothing_of_capds_own_where_it_all_fits(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(mode="pass-through")) as world:
        # All that the catalog has: the starter tap's servers were never asked.
        await known(world, "alpha", "beta")
        world.finder._sets.users.unlisted = {}
        client = await world.session("s")

        listed = await client.result("tools/list")

        assert [each["name"] for each in listed["tools"]] == [
            "alpha__echo",
            "alpha__die",
            "beta__echo",
            "beta__die",
        ]
        assert await client.call("beta__echo", a=1) == ('{"a": 1}', False)
        assert client.list_changes == 0


WHOLE = ["alpha__echo", "alpha__die", "beta__echo", "beta__die"]


async def test_a_few_tools_are_listed_all_with_nothing_of_capds_own(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha", "beta")

        client = await world.session("s")

        assert await client.tools() == WHOLE
        (entry,) = await world.sessions()
        reason = "all tools cost less than capd's own and searches would"
        assert (entry.mode, entry.mode_reason) == ("pass-through", reason)
        assert await world.leases() == {}
        assert await client.call("beta__echo", a=1) == ('{"a": 1}', False)


async def test_the_tools_that_find_others_join_where_more_comes_to_a_whole_list(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha", "beta")
        client = await world.session("s")
        before = await client.tools()

        world.capability("gamma", "gamma")
        await world.reload()
        while not client.list_changes:
            await trio.sleep(0.05)

        assert (before, await client.tools()) == (WHOLE, [*WHOLE, *OWN])


async def test_a_client_that_never_lists_again_has_all_of_a_few_tools(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, rules=SessionRules(table=NEVER)) as world:
        await known(world, "alpha", "beta")

        client = await world.session("s")

        assert await client.tools() == WHOLE


@pytest.mark.parametrize("mode", ["dynamic", "stable"])
async def test_a_few_tools_are_not_listed_where_another_mode_is_set(
    autojump_clock: MockClock, tmp_path: Path, mode: ModeSetting
) -> None:
    async with running_world(tmp_path, rules=SessionRules(mode=mode)) as world:
        await known(world, "alpha", "beta")

        client = await world.session("s")

        assert await client.tools() == OWN


async def test_a_child_begins_with_what_its_parent_has_and_each_goes_its_own_way(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        parent = await world.session("p")
        await parent.capability("enable", "alpha")
        parents = await parent.tools()

        child = await world.session("c", parent="p")
        fresh = await world.session("f", parent="p", inherit=False)
        await child.capability("enable", "beta")
        await parent.capability("disable", "alpha")

        assert parents == [*OWN, "alpha__echo", "alpha__die"]
        assert await child.tools() == [*parents, "beta__echo", "beta__die"]
        assert (await parent.tools(), await fresh.tools()) == (OWN, OWN)
        assert await world.leases() == {"alpha": ["c"], "beta": ["c"]}
        assert await child.call("alpha__echo", a=1) == ('{"a": 1}', False)


async def test_a_server_that_is_not_lazy_is_started_and_listed_for_every_session(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("gamma", "gamma", keys="lazy = false")
        await world.reload()
        while not world.finder._sets.users.known._eager:
            await trio.sleep(0.05)
        client = await world.session("s")
        await trio.sleep(1)

        listed = await client.tools()

        assert listed == [*OWN, "gamma__echo", "gamma__die"]
        assert await world.leases() == {"gamma": ["s"]}


async def test_a_server_that_waits_for_its_secret_holds_up_no_other(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        secret = 'lazy = false\nenv = { KEY = "{{ENV:NOBODY_HAS_IT}}" }'
        world.capability("zeta", "zeta", keys=secret)
        world.capability("aaa", "aaa", keys=secret)
        world.capability("gamma", "gamma", keys="lazy = false")
        await world.reload()
        while len(world.finder._sets.users.known._eager) < 3:
            await trio.sleep(0.05)
        client = await world.session("s")
        await trio.sleep(1)

        assert await client.tools() == [*OWN, "gamma__echo", "gamma__die"]


class Vault(NothingStored):
    """Stored secrets, to which a test adds."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def values(self) -> dict[str, str]:
        return self.known


async def test_a_secret_that_is_stored_later_wakes_the_server_that_waits_for_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.environments.stored = vault = Vault()
        world.capability("gamma", "gamma", keys='lazy = false\nenv = { KEY = "{{ENV:KEY}}" }')
        await world.reload()
        while not world.finder._sets.users.known._eager:
            await trio.sleep(0.05)
        client = await world.session("s")
        await trio.sleep(100)
        before = await client.tools()

        vault.known = {"KEY": "x"}
        await trio.sleep(10)

        assert (before, await client.tools()) == (OWN, [*OWN, "gamma__echo", "gamma__die"])
        assert client.list_changes == 1


async def test_a_message_is_not_for_a_capability_of_another_domain(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        config = tmp_path / "tap/capabilities/alpha/config.toml"
        config.write_text(f'{config.read_text()}domains = ["writer"]\n')
        await world.reload()
        await world.until_routing()
        world.host.services.settings._domains = Domains({"editor": "developer"}, {})
        client = await world.session("s")

        taken = await client.result("capd/turn", text="alpha things please")

        assert (taken["name"], taken["problem"], taken["changed"]["added"]) == ("", "", [])


async def test_the_same_message_twice_is_one_change_and_then_the_same_bytes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        first = await client.result("capd/turn", text="alpha things please")
        listed = await client.result("tools/list")

        second = await client.result("capd/turn", text="alpha things please")

        assert first["changed"] == {"added": ["alpha__echo", "alpha__die"], "removed": []}
        assert (second["changed"], second["reason"]) == (
            {"added": [], "removed": []},
            "already_active",
        )
        assert await client.result("tools/list") == listed
        assert client.list_changes == 1


LACKS = (
    "needs TOKEN, which this session does not have; tell the user to run `capd secret set TOKEN`"
)


async def test_a_search_and_a_call_of_a_server_that_lacks_a_key_name_the_key_and_the_command(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("tracker-linear", "linear", keys='env = { TOKEN = "{{ENV:TOKEN}}" }')
        await world.reload()
        await known(world, "beta")
        client = await world.session("s")

        call = await client.call("tool_call", name="linear__create_issue", arguments={})
        plain = await client.ask("tools/call", name="linear__create_issue", arguments={})
        search, _ = await client.call("tool_search", query="create a linear issue")
        exact = await selected(client, "linear__create_issue")
        other, _ = await client.call("tool_search", query="echo something back")

        assert call == (f"linear__create_issue cannot be called: {LACKS}.", True)
        assert f"cannot be called: {LACKS}." in json.dumps(plain)
        assert f"Not searched: linear {LACKS}." in search
        assert f"Not searched: linear {LACKS}." in exact
        assert "TOKEN" not in other


async def test_a_locked_server_that_policy_denies_is_not_named(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    rules = SessionRules(everyone=PolicyRules("[policy]", deny=("linear:*",)))
    async with running_world(tmp_path, rules=rules) as world:
        world.capability("tracker-linear", "linear", keys='env = { TOKEN = "{{ENV:TOKEN}}" }')
        await world.reload()
        await known(world, "beta")
        client = await world.session("s")

        call, is_error = await client.call("tool_call", name="linear__create_issue", arguments={})
        search, _ = await client.call("tool_search", query="create a linear issue")

        assert is_error
        assert "TOKEN" not in call + search


async def test_a_stored_key_opens_a_server_of_which_no_tool_is_known(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("tracker-linear", "linear", keys='env = { TOKEN = "{{ENV:TOKEN}}" }')
        await world.reload()
        await known(world, "beta")
        client = await world.session("s")
        await client.send({"capd": "env", "env": {"TOKEN": "hush"}})

        call, _ = await client.call("tool_call", name="linear__create_issue", arguments={})

        assert "TOKEN" not in call
        assert call.startswith("No tool 'linear__create_issue' is on")
