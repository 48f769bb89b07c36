"""An error that nobody foresaw costs one session, request or client, and nobody beside it.

The errors are planted in a part that sessions share (`SessionServices`), or come through a value
that a client may really send.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from capd.actors.session import store
from capd.actors.session.approvals import SessionApprovals
from capd.actors.session.session import Session
from capd.adapters.clients.upstream import Upstream
from capd.core.results.handles import Readers
from capd_protos import registry, settings
from capd_protos.ledger import CallNote
from capd_protos.socket import EnvValues
from capd_protos.types import ActorName, SessionKey

from .fakes import FakeProcess, Json
from .world import Client, World, running_world

A, B = SessionKey("a"), SessionKey("b")


def fails(*_: object, **__: object) -> NoReturn:
    raise KeyError("planted")


def session_of(upstream: Upstream, *_: object) -> str:
    return upstream.session


def failing_for(key: str, real: Callable[..., Any], of: Callable[..., str]) -> Callable[..., Any]:
    """Return `real`, but failing for the session `key`; `of` finds the key in the arguments."""

    def act(*arguments: Any, **options: Any) -> Any:
        if of(*arguments) == key:
            fails()
        return real(*arguments, **options)

    return act


def key_of(approvals: SessionApprovals, *_: object) -> str:
    return approvals._context.place.key


def session(world: World, key: str) -> Session:
    return world.host._sessions[SessionKey(key)].session


async def pair(world: World) -> tuple[Client, Client]:
    """Return two clients that share the running server alpha."""
    a, b = await world.session("a"), await world.session("b")
    for client in (a, b):
        assert (await client.capability("enable", "alpha"))[1] is False
    return a, b


async def works(client: Client) -> bool:
    return await client.call("alpha__echo", a=1) == ('{"a": 1}', False)


# One call


async def test_notes_of_a_call_that_fail_cost_it_neither_its_result_nor_its_server(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        note = world.journal.note

        def of(noted: object) -> str:
            return noted.session if isinstance(noted, CallNote) else ""

        monkeypatch.setattr(world.journal, "note", failing_for("a", note, of))

        assert await works(a)
        assert await works(b)
        assert len(world.machine.specs) == 1


async def test_a_call_that_fails_inside_before_it_is_sent_says_so_and_reaches_no_server(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        for name in ("rule", "check"):
            planted = failing_for("a", getattr(SessionApprovals, name), key_of)
            monkeypatch.setattr(SessionApprovals, name, planted)

        result = await a.result("tools/call", name="alpha__echo", arguments={})

        assert result["isError"]
        assert result["_meta"] == {"capd/outcome": "not_sent", "capd/retriable": True}
        assert "capd itself failed over this call (KeyError" in result["content"][0]["text"]
        assert world.machine.processes[0].asked_for("tools/call") == []
        assert await a.tools() == await b.tools()
        assert await works(b)


async def test_a_call_whose_shortening_fails_gets_its_whole_result(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        results = session(world, "a").calls.results
        monkeypatch.setattr(results, "is_unchanged", lambda *_: False)
        monkeypatch.setattr(results, "passed", fails)

        assert await works(a)
        assert await works(b)


async def test_a_direct_call_whose_end_fails_is_answered_and_its_server_lives(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        monkeypatch.setattr(session(world, "a").calls.results, "is_unchanged", fails)
        monkeypatch.setattr(session(world, "a").calls.leases, "leave", fails)

        assert await works(a)
        assert await works(b)
        assert len(world.machine.specs) == 1


async def test_a_call_from_outside_that_fails_inside_has_an_outcome(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        await pair(world)
        person = await world.controller()
        planted = failing_for("a", SessionApprovals.check, key_of)
        monkeypatch.setattr(SessionApprovals, "check", planted)

        answer = await person.ask("call", name="alpha__echo", session="a")

        assert answer["error"]["data"] == {"code": "not_sent"}
        assert "capd itself failed over this call (KeyError" in answer["error"]["message"]


# What a server says to one of two sessions


async def test_a_question_over_which_a_session_fails_costs_no_other_the_server(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(process: FakeProcess, request: Json) -> None:
        question = {"jsonrpc": "2.0", "id": 7, "method": "roots/list"}
        await process.say(question)
        while not [each for each in process.asked if each.get("id") == 7]:
            await trio.sleep(0.1)
        answer = next(each for each in process.asked if each.get("id") == 7)
        await process.reply(request, {"content": [{"type": "text", "text": json.dumps(answer)}]})

    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        world.machine.scripts["alpha"].call = ask
        offers = b'{"roots":{}}'
        connection = session(world, "a").connection
        connection.client = type(connection.client)(capabilities=offers)
        upstream = connection.upstream
        assert upstream is not None
        upstream.client = connection.client  # type: ignore[attr-defined]
        monkeypatch.setattr(Upstream, "ask", failing_for("a", Upstream.ask, session_of))

        said, _ = await a.call("alpha__echo")

        assert json.loads(said)["error"]["code"] == -32603
        world.machine.scripts["alpha"].call = None
        assert await works(b)
        assert len(world.machine.specs) == 1


async def test_a_notification_over_which_one_session_fails_reaches_the_others(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        failing = failing_for("a", Upstream.list_changed, session_of)
        monkeypatch.setattr(Upstream, "list_changed", failing)

        method = "notifications/prompts/list_changed"
        await world.machine.processes[0].say({"jsonrpc": "2.0", "method": method})
        await trio.sleep(5)

        assert [each["method"] for each in b.heard if each["method"] == method] == [method]
        assert await works(a)
        assert await works(b)


# What concerns all sessions


async def test_rules_that_cannot_be_applied_end_that_session_and_no_other(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        a, b = await pair(world)
        monkeypatch.setattr(session(world, "a"), "on_rules", fails)
        seen: list[object] = []
        monkeypatch.setattr(session(world, "b"), "on_rules", seen.append)

        world.bus.publish(settings.SettingsChanged())
        await a.is_closed.wait()
        await wait_all_tasks_blocked()

        # What the new rules forbid must not stay on: it begins again by them.
        assert a.heard[-1]["capd"] == "closing"
        assert (a.heard[-1]["reason"], a.heard[-1].get("reconnect", True)) == (
            "capd failed over its settings",
            True,
        )
        assert [each.key for each in await world.sessions()] == ["b"]
        assert await world.leases() == {"alpha": ["b"]}
        assert len(seen) == 1
        assert await works(b)


async def test_a_project_whose_name_no_folder_has_stops_nobody(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        odd = await world.session("odd", cwd="a\0b")
        b = await world.session("b")

        world.bus.publish(registry.CatalogChanged([], project=str(world.project)))
        await trio.sleep(5)

        assert (await b.capability("enable", "alpha"))[1] is False
        assert await works(b)
        assert await odd.tools() is not None


async def test_a_hint_over_which_one_session_fails_reaches_the_others(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        await pair(world)
        seen: list[int] = []
        monkeypatch.setattr(session(world, "a"), "on_skills_changed", fails)
        monkeypatch.setattr(session(world, "b"), "on_skills_changed", lambda: seen.append(1))

        world.bus.publish(registry.CatalogChanged([], has_other_skills=True))
        await trio.sleep(5)

        assert seen == [1]


async def test_a_session_that_cannot_be_described_hides_no_other(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        await pair(world)
        monkeypatch.setattr(session(world, "a"), "entry", fails)

        listed = await world.sessions()

        assert [each.key for each in listed] == ["b"]


async def test_a_part_of_the_curator_that_fails_is_begun_again_and_costs_no_session(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        uses = world.host.services.uses
        ask, failed = world.bus.ask, 0

        async def failing_ask(actor: ActorName, request: Any, *rest: Any) -> Any:
            nonlocal failed
            if actor == "ledger" and failed < 3:
                failed += 1
                fails()
            return await ask(actor, request, *rest)

        monkeypatch.setattr(world.bus, "ask", failing_ask)
        for _ in range(8):
            await uses.known()
            await trio.sleep(10)

        assert failed == 3
        assert await works(a)
        assert await works(b)


# The beginning and the end of a session


async def test_a_save_that_fails_costs_no_other_session_its_save_nor_its_own_its_end(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        save = world.kept.save
        monkeypatch.setattr(world.kept, "save", failing_for("a", save, lambda record: record.key))
        a, b = await pair(world)
        await trio.sleep(60)
        saved = list(world.kept.records)

        await a.send({"capd": "goodbye"})
        await a.is_closed.wait()
        await trio.sleep(1)

        assert saved == ["b"]
        assert [each.key for each in await world.sessions()] == ["b"]
        assert await world.leases() == {"alpha": ["b"]}
        assert await works(b)
        assert (await world.session("a")).welcome["session"] == "a"


async def test_a_saved_record_that_cannot_be_restored_costs_its_client_no_session(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, b = await pair(world)
        await trio.sleep(5)
        await a.send({"capd": "goodbye"})
        await a.is_closed.wait()
        monkeypatch.setattr(store, "restore", fails)

        again = await world.session("a")

        assert "alpha__echo" not in await again.tools()
        assert (await again.capability("enable", "alpha"))[1] is False
        assert await works(again)
        assert await works(b)


async def test_a_step_at_the_end_that_fails_leaves_the_key_and_the_leases_free(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, _ = await pair(world)
        monkeypatch.setattr(world.host.services.environments, "drop", fails)
        monkeypatch.setattr(Readers, "ended", fails)
        (instance,) = {held.instance for held in session(world, "a")._parts.context.state.servers}
        running = world.instances.get(instance)
        monkeypatch.setattr(running, "leave", fails)

        await a.send({"capd": "goodbye"})
        await a.is_closed.wait()
        await trio.sleep(1)

        assert [each.key for each in await world.sessions()] == ["b"]
        assert await world.leases() == {"alpha": ["b"]}


# What a client sends


async def test_a_frame_over_which_capd_fails_costs_its_client_no_connection(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        a, _ = await pair(world)
        monkeypatch.setattr(world.environments, "put", fails)
        monkeypatch.setattr(session(world, "a").calls, "on_roots_changed", fails)

        await a.send({"capd": EnvValues.__struct_config__.tag, "env": {"K": "v"}})
        await a.send({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"})

        assert await works(a)


@pytest.mark.parametrize("pid", [10**30, -(10**30), 1 << 64])
async def test_a_hello_with_a_number_that_no_message_holds_is_answered(
    autojump_clock: MockClock, tmp_path: Path, pid: int
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.connected()

        answer = await client.hello(client={"name": "editor", "pid": pid})

        assert (answer["capd"], answer["code"]) == ("refused", "bad_hello")


async def test_a_hello_over_which_the_gateway_fails_is_answered_and_the_next_is_let_in(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        with monkeypatch.context() as planted:
            planted.setattr("capd.actor_clients.registry.RegistryClient.describe", fails)
            client = await world.connected()
            answer = await client.hello()

        assert (answer["capd"], answer["code"]) == ("refused", "bad_hello")
        assert answer["message"] == (
            "capd itself failed over this request (KeyError; its log says where)"
        )
        assert (await world.session("b")).welcome["session"] == "b"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("search", {"query": "echo", "limit": 10**30}),
        ("discover", {"intent": "echo", "limit": -(10**30)}),
        ("login_wait", {"ticket": 1 << 64}),
        ("login_paste", {"ticket": 10**30, "address": "x"}),
        ("approve", {"number": 10**30, "answer": "once"}),
    ],
)
async def test_a_number_that_no_message_holds_is_an_invalid_parameter(
    autojump_clock: MockClock, tmp_path: Path, method: str, params: Json
) -> None:
    async with running_world(tmp_path) as world:
        person = await world.controller()

        answer = await person.ask(method, **params)

        assert answer["error"]["code"] == -32602


async def test_a_control_request_over_which_capd_fails_is_answered(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        person = await world.controller()
        monkeypatch.setitem(world.control._methods, "status", fails)

        answer = await person.ask("status")

        assert answer["error"] == {
            "code": -32603,
            "message": "capd itself failed over this request (KeyError; its log says where)",
        }
        assert "result" in await person.ask("caps")


@pytest.mark.parametrize("project", ["a\0b", "/" + "x" * 5000])
async def test_a_project_that_no_folder_can_be_is_an_answer_like_any_other(
    autojump_clock: MockClock, tmp_path: Path, project: str
) -> None:
    async with running_world(tmp_path) as world:
        person = await world.controller()

        answer = await person.ask("index", project=project, session="")

        assert "result" in answer


# Other actors


async def test_a_tool_list_that_cannot_be_kept_costs_no_server(
    autojump_clock: MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_world(tmp_path) as world:
        monkeypatch.setattr(world.tool_lists, "keep", fails)

        a, b = await pair(world)

        assert await works(a)
        assert await works(b)
