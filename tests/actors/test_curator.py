"""One session: what it activates, what it lists, and that it leases only what it lists."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from capd_protos import curator, supervisor
from capd_protos.types import InstanceId, ServerName, SessionKey

from .fakes import FakeProcess, Json, Script, text, tool
from .world import CURATOR, CURATOR_REPLIES, LINGER, OWN, running_world

ALPHA = ["alpha__echo", "alpha__die"]
BETA = ["beta__echo", "beta__die"]


# Switching on and off


async def test_what_is_switched_on_is_listed_and_can_be_called(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        assert await client.tools() == OWN

        said = await client.capability("enable", "alpha")

        expected = "Capability 'alpha' is on. Tools now available: alpha__echo, alpha__die."
        assert said == (expected, False)
        assert await client.tools() == OWN + ALPHA
        assert await client.call("alpha__echo", a=1) == ('{"a": 1}', False)
        assert client.list_changes == 1
        assert await world.leases() == {"alpha": ["s"]}


async def test_switching_on_what_is_on_says_so_and_changes_nothing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        before = await client.result("tools/list")

        said = await client.capability("enable", "mine/alpha")

        shown = "alpha__echo, alpha__die"
        assert said == (f"Capability 'alpha' is already on. Its tools: {shown}.", False)
        assert await client.result("tools/list") == before
        assert (client.list_changes, len(world.machine.specs)) == (1, 1)


async def test_switching_off_takes_the_tools_and_the_process_after_its_linger(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        said = await client.capability("disable", "alpha")

        assert said == ("Capability 'alpha' is off. No longer needed: alpha.", False)
        assert await client.tools() == OWN
        assert client.list_changes == 2
        await trio.sleep(LINGER + 1)
        assert world.machine.alive == []


async def test_switching_off_says_who_still_uses_a_server(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        first, second = await world.session("a"), await world.session("b")
        await first.capability("enable", "alpha")
        await second.capability("enable", "alpha")

        said = await first.capability("disable", "alpha")

        assert said[0].endswith("Server 'alpha' is still used by 1 other session.")
        assert len(world.machine.specs) == 1
        assert await world.leases() == {"alpha": ["b"]}


async def test_a_second_server_that_fails_leaves_everything_as_it_was(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["beta"] = Script(exits_at_start=3, stderr=["no token"])
        client = await world.session("s")
        world.capability("gamma", "gamma")
        await world.reload()
        await client.capability("enable", "gamma")
        before = (await client.result("tools/list"), await world.leases(), client.list_changes)

        said, is_error = await client.capability("enable", "both")

        assert is_error
        assert said == (
            "Server 'beta' cannot be used: it exited with code 3 (last on stderr: no token)."
            "\nIts last lines on stderr:\n  no token"
        )
        after = (await client.result("tools/list"), await world.leases(), client.list_changes)
        assert after == before
        assert [session.active[0].id.name for session in await world.sessions()] == ["gamma"]
        await trio.sleep(LINGER + 1)
        assert world.machine.alive == [world.machine.processes[0].pid]


async def test_a_failure_keeps_what_the_session_held_before(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["beta"] = Script(exits_at_start=3)
        client = await world.session("s")
        await client.capability("enable", "alpha")

        await client.capability("enable", "both")

        assert await world.leases() == {"alpha": ["s"]}
        await trio.sleep(LINGER + 1)
        assert await client.call("alpha__echo") == ("{}", False)
        assert len(world.machine.specs) == 2


async def test_the_least_recently_used_goes_and_only_after_the_commit(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, cap=2) as world:
        for name in ("gamma", "broken"):
            world.capability(name, name)
        world.machine.scripts["broken"] = Script(exits_at_start=1)
        await world.reload()
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.capability("enable", "beta")
        await client.call("alpha__echo")
        await client.call("beta__die")

        await client.capability("enable", "broken")
        assert sorted(await client.tools()) == sorted(OWN + ALPHA + BETA)
        said, _ = await client.capability("enable", "gamma")

        assert said.endswith("Switched off to make room: beta.")
        assert await client.tools() == [*OWN, *ALPHA, "gamma__echo", "gamma__die"]
        assert await world.leases() == {"alpha": ["s"], "gamma": ["s"]}
        assert client.list_changes == 3


async def test_a_failed_call_is_no_use(autojump_clock: MockClock, tmp_path: Path) -> None:
    async def fail(process: FakeProcess, request: Json) -> None:
        await process.reply(request, {**text("no"), "isError": True})

    async with running_world(tmp_path, cap=2) as world:
        world.capability("gamma", "gamma")
        await world.reload()
        world.machine.scripts["alpha"].call = fail
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.capability("enable", "beta")
        assert await client.call("alpha__echo") == ("no", True)

        said, _ = await client.capability("enable", "gamma")

        assert said.endswith("Switched off to make room: alpha.")


async def test_a_shared_server_stays_with_the_capability_that_is_left(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.capability("enable", "both")
        assert await client.tools() == OWN + ALPHA + BETA

        await client.capability("disable", "both")

        assert await client.tools() == OWN + ALPHA
        assert await world.leases() == {"alpha": ["s"]}


async def test_two_requests_of_one_session_come_one_after_the_other(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].start_delay = 20
        client = await world.session("s")

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.capability, "enable", "alpha")
            nursery.start_soon(client.capability, "enable", "both")

        assert len(world.machine.specs) == 2
        assert await client.tools() in (OWN + ALPHA + BETA, OWN + BETA + ALPHA)


async def test_an_enable_that_its_client_cancels_holds_nothing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["beta"].start_delay = 50
        client = await world.session("s")
        params = {"name": "capability", "arguments": {"action": "enable", "name": "both"}}
        request = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}

        await client.send(request)
        await trio.sleep(10)
        assert await world.leases() == {"alpha": ["s"], "beta": ["s"]}
        cancel = {"method": "notifications/cancelled", "params": {"requestId": "x"}}
        await client.send({"jsonrpc": "2.0", **cancel})
        await trio.sleep(100)

        assert await world.leases() == {}
        assert await client.tools() == OWN
        assert world.machine.alive == []
        assert not any(each.get("id") == "x" for each in client.heard)


async def test_a_disable_that_its_client_cancels_lets_go_all_the_same(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "both")
        params = {"name": "capability", "arguments": {"action": "disable", "name": "both"}}
        request = {"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": params}
        cancel = {"method": "notifications/cancelled", "params": {"requestId": "x"}}

        # The cancellation comes in the moment in which the first release is asked.
        supervisor = world.host.services.supervisor
        release = supervisor.release

        async def late(*args: Any, **options: Any) -> list[SessionKey]:
            await client.send({"jsonrpc": "2.0", **cancel})
            await trio.sleep(1)
            return await release(*args, **options)

        supervisor.release = late  # type: ignore[method-assign]
        await client.send(request)
        await trio.sleep(20)

        assert await world.leases() == {}
        assert await client.tools() == OWN


async def test_a_session_that_ended_is_given_nothing_more(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        host_session = world.host._sessions[next(iter(world.host._sessions))]
        activation = host_session.session.activation

        await activation.leases.release_all()
        outcome = await activation.enable("alpha")

        assert not outcome.is_ok
        assert (await world.leases(), world.machine.specs) == ({}, [])
        await client.stream.aclose()


async def test_one_server_under_two_names_is_let_go_under_both(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("gamma", "alpha")
        default = tmp_path / "tap" / "capabilities" / "gamma" / "default.toml"
        default.write_text(default.read_text().replace('name = "alpha"', 'name = "other"'))
        await world.reload()
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await client.capability("enable", "gamma")

        await client.capability("disable", "alpha")
        await client.capability("disable", "gamma")

        assert await world.leases() == {}


# The tool `capability`


@pytest.mark.parametrize(
    ("arguments", "expected", "is_error"),
    [
        ({}, "`action` is missing", True),
        ({"action": "dance"}, "Unknown action 'dance'", True),
        ({"action": 3}, "The arguments are wrong", True),
        ({"action": "enable"}, "`name` is missing", True),
        ({"action": "disable"}, "`name` is missing", True),
        ({"action": "discover"}, "`intent` is missing", True),
        ({"action": "enable", "name": "alpah"}, "Near names: alpha", True),
        ({"action": "enable", "name": "nowhere/alpha"}, "no tap 'nowhere'", True),
        ({"action": "disable", "name": "alpha"}, "Capability 'alpha' is not on.", False),
        ({"action": "enable", "name": "keyed"}, "needs TOKEN", True),
        ({"action": "enable", "name": "empty"}, "nothing to switch on", True),
        ({"action": "enable", "name": "filtered"}, "matched none of the 2 tools", False),
        ({"action": "enable", "name": "bare"}, "Its servers offer no tools.", False),
        ({"action": "enable", "name": "dep"}, "the tap has no script for it", True),
        ({"action": "discover", "intent": "alpha things"}, '): "alpha one"', False),
        (
            {"action": "discover", "intent": "what a day that was"},
            "No installed capability fits",
            False,
        ),
        ({"action": "list"}, '- alpha: "alpha one", "alpha two", "alpha three"', False),
        ({"action": "list"}, "[needs TOKEN]", False),
    ],
)
async def test_every_request_is_answered_in_its_own_words(
    autojump_clock: MockClock,
    tmp_path: Path,
    arguments: Json,
    expected: str,
    is_error: bool,
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("keyed", "keyed", keys='env = { T = "{{ENV:TOKEN}}" }')
        world.capability("empty")
        world.capability("filtered", "alpha", provider='[roles.mcp]\nallowed_tools = ["no-*"]\n')
        world.capability("bare", "bare")
        world.machine.scripts["bare"].tools = []
        world.capability("dep", provider='[deps]\nrequire = ["org/tool"]\n')
        await world.reload()
        await world.until_routing()
        client = await world.session("s")

        said, was_error = await client.call("capability", **arguments)

        assert expected in said
        assert was_error is is_error


async def test_discover_marks_what_is_on_and_goes_by_words_when_the_model_is_not_there(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        hit, _ = await client.capability("discover", intent="alpha things")
        world.embedder.is_loading = True

        by_words = await client.capability("discover", intent="beta things")
        said = await client.capability("discover", intent="zebra stripes")

        assert "- [active] alpha (score " in hit
        assert ("- beta (score" in by_words[0], by_words[1]) == (True, False)
        assert (said[0][:38], said[1]) == ("The embedding model is still loading, ", True)


async def test_secrets_that_come_later_make_a_capability_usable(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("keyed", "keyed", keys='env = { T = "{{ENV:TOKEN}}" }')
        await world.reload()
        client = await world.session("s")
        assert client.welcome["want_env"] == ["TOKEN"]
        await client.send({"capd": "env", "env": {"TOKEN": "secret-value"}})

        said, is_error = await client.capability("enable", "keyed")

        assert (said[:26], is_error) == ("Capability 'keyed' is on. ", False)
        assert world.machine.specs[0].env["T"] == "secret-value"


# Calls


async def test_an_unknown_tool_is_an_error_with_near_names(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        answer = await client.ask("tools/call", name="alpha__ecko", arguments={})

        assert answer["error"]["code"] == -32602
        assert "Near names: alpha__echo" in answer["error"]["message"]


async def test_a_call_after_the_servers_death_starts_it_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        died = await client.result("tools/call", name="alpha__die", arguments={})
        again = await client.call("alpha__echo", a=2)

        assert died["isError"]
        assert died["_meta"] == {"capd/outcome": "outcome_unknown", "capd/retriable": False}
        assert again == ('{"a": 2}', False)
        assert len(world.machine.specs) == 2
        assert client.list_changes == 1


async def test_a_call_that_cannot_be_sent_says_so(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        world.machine.scripts["alpha"].exits_at_start = 1
        world.machine.processes[0].exit(9)
        await wait_all_tasks_blocked()

        result = await client.result("tools/call", name="alpha__echo", arguments={})

        assert result["_meta"] == {"capd/outcome": "not_sent", "capd/retriable": True}


async def test_both_sessions_can_let_go_after_a_restart_that_one_of_them_caused(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        first, second = await world.session("a"), await world.session("b")
        await first.capability("enable", "alpha")
        await second.capability("enable", "alpha")
        await second.call("alpha__die")
        await second.call("alpha__echo")

        await first.capability("disable", "alpha")
        await second.capability("disable", "alpha")

        assert await world.leases() == {}
        await trio.sleep(LINGER + 1)
        assert world.machine.alive == []


async def test_a_servers_own_error_is_passed_on_as_it_is(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    error = {"code": -32001, "message": "mine", "data": [1]}

    async def fail(process: FakeProcess, request: Json) -> None:
        await process.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"].call = fail
        client = await world.session("s")
        await client.capability("enable", "alpha")

        answer = await client.ask("tools/call", name="alpha__echo", arguments={})

        assert answer["error"] == error


async def test_the_surface_follows_what_the_server_lists(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        world.machine.scripts["alpha"].tools = [tool("echo", "says it again"), tool("fresh")]

        changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        await world.machine.processes[0].say(changed)
        await trio.sleep(5)

        listed = (await client.result("tools/list"))["tools"]
        assert [t["name"] for t in listed] == [*OWN, "alpha__echo", "alpha__fresh"]
        assert listed[len(OWN)]["description"] == "says it again"
        assert client.list_changes == 2


async def test_a_hint_that_nobody_can_follow_costs_no_session(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        instance = (await world.servers())[0].instance
        world.scopes["supervisor"].cancel()
        await wait_all_tasks_blocked()

        world.bus.publish(supervisor.ServerToolsChanged(ServerName("alpha"), instance))
        world.bus.publish(supervisor.ServerToolsChanged(ServerName("x"), InstanceId("none")))
        await trio.sleep(30)

        assert await client.tools() == OWN + ALPHA


# Turns


async def test_a_users_words_switch_on_what_they_ask_for_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        first = await client.result("capd/turn", text="alpha things please")
        heard = list(client.heard)
        before = await client.result("tools/list")
        second = await client.result("capd/turn", text="alpha things please")

        assert (first["outcome"], first["name"]) == ("activate", "alpha")
        assert first["changed"] == {"added": ALPHA, "removed": []}
        assert [each["method"] for each in heard] == ["notifications/tools/list_changed"]
        assert (second["outcome"], second["reason"]) == ("abstain", "already_active")
        assert second["changed"] == {"added": [], "removed": []}
        assert (client.heard, await client.result("tools/list")) == (heard, before)
        assert len(world.machine.specs) == 1


async def test_a_turn_whose_server_fails_says_what_went_wrong(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"] = Script(exits_at_start=1)
        client = await world.session("s")

        turn = await client.result("capd/turn", text="alpha things please")

        assert turn["changed"] == {"added": [], "removed": []}
        assert "exited with code 1" in turn["problem"]


@pytest.mark.parametrize("actor", ["registry", "supervisor"])
async def test_a_part_that_does_not_answer_is_told_and_costs_nothing(
    autojump_clock: MockClock, tmp_path: Path, actor: str
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.scopes[actor].cancel()
        await wait_all_tasks_blocked()

        turn = client.result("capd/turn", text="alpha things please")
        enable, is_error = await client.capability("enable", "alpha")

        assert is_error
        assert f"capd's {actor} does not answer" in enable
        assert (await turn)["changed"] == {"added": [], "removed": []}
        assert await client.tools() == OWN


async def test_a_users_words_and_secrets_are_in_no_log_and_secrets_in_no_message(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    words = "alpha things, and my cat is called Zanzibar"
    with capture_logs() as logs:
        async with running_world(tmp_path) as world:
            world.capability("keyed", "keyed", keys='env = { T = "{{ENV:TOKEN}}" }')
            await world.reload()
            await world.until_routing()
            client = await world.session("s")
            await client.send({"capd": "env", "env": {"TOKEN": "hunter2-secret"}})
            await client.result("capd/turn", text=words)
            await client.result("capd/turn", text="keyed things of Zanzibar")
            await client.capability("discover", intent="a cat called Zanzibar")
            await client.call("keyed__echo", a="Zanzibar")
            await client.call("keyed__die")
            await client.send(b'{"capd":"env","env":{"TOKEN":"hunter2-secret"')
            await client.send({"capd": "goodbye"})
            await trio.sleep(1)

    told = repr(logs)
    assert "message_routed" in told
    assert "Zanzibar" not in told
    assert "hunter2" not in told
    assert client.welcome["resume"] not in told
    assert not any(b"hunter2" in seen for seen in world.bus.bytes_seen)
    assert not any(b"Zanzibar" in repr(each).encode() for each in world.bus.events)
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"Zanzibar" in each or b"hunter2" in each for each in kept)


async def test_a_session_is_shown_with_all_that_it_has(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")

        entry = (await world.sessions())[0]

        assert (entry.key, entry.client, entry.project) == ("s", "editor", str(world.project))
        assert (entry.surface, entry.available, entry.cap) == (5, 5, 4)
        assert [a.tools for a in entry.active] == [ALPHA]
        listing = await world.bus.ask(CURATOR, curator.ListTools(entry.key), CURATOR_REPLIES, 9)
        assert isinstance(listing, curator.ToolsListed)
        assert [json.loads(each)["name"] for each in listing.tools] == OWN + ALPHA


async def test_what_comes_on_by_hand_and_what_is_called_is_what_the_priors_know(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        world.machine.scripts["beta"].exits_at_start = 1
        used = world.registry._use

        def known(place: str) -> list[str]:
            return sorted(each.name for each in used.of(place))

        await client.capability("enable", "beta")
        await client.capability("enable", "alpha")
        await trio.sleep(1)
        assert (known("session s"), known(f"project {world.project}")) == (["alpha"], ["alpha"])

        used.__init__()  # type: ignore[misc]
        await client.call("alpha__echo", a=1)
        await trio.sleep(1)

        assert (known("session s"), known(f"project {world.project}")) == (["alpha"], ["alpha"])


async def test_a_capability_whose_filter_leaves_no_tool_evicts_nothing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path, cap=1) as world:
        world.capability("filtered", "beta", provider='[roles.mcp]\nallowed_tools = ["no-*"]\n')
        await world.reload()
        client = await world.session("s")
        await client.capability("enable", "alpha")

        said, is_error = await client.capability("enable", "filtered")

        assert ("matched none" in said, is_error) == (True, False)
        assert await client.tools() == OWN + ALPHA
