"""The control role: the document that each method returns, and each refusal."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from capd_protos import socket as frames

from .fakes import FakeProcess, Json, Script
from .world import OWN, running_world

# docs/design/operation.md has the shapes.
CAPS = {
    "tap", "name", "provider", "routable", "reason", "domains", "triggers", "servers", "missing",
    "active_in",
}  # fmt: skip
SERVERS = {
    "name", "identity", "scope", "state", "pid", "leases", "tools", "restarts", "uptime_s",
    "last_error",
    "counts", "sandbox", "findings", "cwd", "cwd_reason", "membership",
}  # fmt: skip
SESSIONS = {
    "key", "client", "pid", "project", "mode", "active", "surface", "available", "tokens",
    "tokens_saved",
}  # fmt: skip
STATUS = {"schema", "daemon", "embedder", "taps", "sessions", "servers", "decisions"}
DAEMON = {"version", "pid", "uptime_s", "rss_bytes", "degraded"}
TURN = {
    "schema",
    "outcome",
    "name",
    "reason",
    "top",
    "suggested",
    "suggestion",
    "context",
    "changed",
    "ms",
}


async def test_the_status_has_every_member_that_is_promised(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        turn = await client.result("capd/turn", text="alpha things please")

        status = await control.result("status")

        assert status.keys() >= STATUS
        assert status["schema"] == 1
        assert status["daemon"].keys() >= DAEMON
        assert status["sessions"][0].keys() >= SESSIONS
        assert status["sessions"][0]["active"][0].keys() >= {"kind", "name", "last_used_at"}
        assert status["servers"][0].keys() >= SERVERS
        assert (status["servers"][0]["state"], status["servers"][0]["leases"]) == ("ready", ["s"])
        assert turn.keys() >= TURN
        decision = status["decisions"][0]
        assert (decision["outcome"], decision["name"], decision["session"]) == (
            "activate",
            "alpha",
            "s",
        )
        assert "alpha things please" not in json.dumps(status)
        assert [tap["name"] for tap in status["taps"]] == ["mine"]
        assert status["embedder"]["state"] == "ready"


async def test_caps_servers_and_sessions_are_the_documents_of_70_operation(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("keyed", "keyed", keys='env = { T = "{{ENV:TOKEN}}" }')
        await world.reload()
        client, control = await world.session("s"), await world.controller()
        await client.capability("enable", "alpha")

        caps = await control.result("caps")
        servers = await control.result("servers")
        sessions = await control.result("sessions")

        entries = {entry["name"]: entry for entry in caps["capabilities"] if entry["tap"] == "mine"}
        assert all(entry.keys() >= CAPS for entry in caps["capabilities"])
        assert entries["alpha"]["active_in"] == ["s"]
        assert entries["keyed"]["missing"] == ["TOKEN"]
        assert entries["keyed"]["commands"] == ["keyed"]
        assert [entry.keys() >= SERVERS for entry in servers["servers"]] == [True]
        assert [entry.keys() >= SESSIONS for entry in sessions["sessions"]] == [True]


async def test_a_reload_is_answered_when_it_is_done_however_long_that_takes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world, trio.open_nursery() as nursery:
        control = await world.controller()
        answers: list[dict[str, Any]] = []

        async def reload() -> None:
            answers.append(await control.result("reload"))

        async with world.live._loading:  # as while a large file is read
            nursery.start_soon(reload)
            await trio.sleep(600)
            assert answers == []

        while not answers:
            await trio.sleep(0.1)
        assert [tap["name"] for tap in answers[0]["taps"]] == ["mine"]


async def test_a_session_is_driven_from_outside_as_from_its_own_client(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()

        enabled = await control.result("enable", name="alpha", session="s")
        listed = await control.result("tools", session="s")
        called = await control.result("call", name="alpha__echo", arguments={"a": 1})
        disabled = await control.result("disable", name="alpha")
        turned = await control.result("turn", text="beta things please")

        assert (enabled["ok"], enabled["changed"]["added"]) == (
            True,
            ["alpha__echo", "alpha__die"],
        )
        assert [t["name"] for t in listed["tools"]][len(OWN) :] == ["alpha__echo", "alpha__die"]
        assert called["result"]["content"][0]["text"] == '{"a": 1}'
        assert disabled["changed"]["removed"] == ["alpha__echo", "alpha__die"]
        assert (turned["session"], turned["name"]) == ("s", "beta")
        assert client.list_changes == 3


async def test_a_message_that_was_cut_within_an_emoji_is_a_turn(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        control = await world.controller()

        turned = await control.result("turn", text="beta things please \ud83d")

        assert (turned["session"], turned["name"]) == ("s", "beta")


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("tools", {"session": "nobody"}, frames.NOT_FOUND),
        ("call", {"name": "nothing", "session": "a"}, frames.NOT_FOUND),
        ("call", {"name": "alpha__die", "session": "a"}, frames.OUTCOME_UNKNOWN),
        ("turn", {"text": "which one"}, frames.NOT_FOUND),
        ("discover", {"intent": " "}, frames.INVALID_PARAMS),
        ("discover", {"intent": "x", "limit": "many"}, frames.INVALID_PARAMS),
        ("enable", {}, frames.INVALID_PARAMS),
        ("dance", {}, frames.METHOD_NOT_FOUND),
    ],
)
async def test_each_refusal_has_its_code(
    autojump_clock: MockClock, tmp_path: Path, method: str, params: Json, code: int
) -> None:
    async with running_world(tmp_path) as world:
        first = await world.session("a")
        await world.session("b")
        await first.capability("enable", "alpha")
        control = await world.controller()

        answer = await control.ask(method, **params)

        assert answer["error"]["code"] == code
        assert await control.result("servers")


async def test_a_servers_own_error_is_told_apart_from_capds(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async def fail(process: FakeProcess, request: Json) -> None:
        error = {"code": -1, "message": "boom"}
        await process.say({"jsonrpc": "2.0", "id": request["id"], "error": error})

    async with running_world(tmp_path) as world:
        world.machine.scripts["alpha"] = Script(call=fail)
        client, control = await world.session("s"), await world.controller()
        await client.capability("enable", "alpha")

        answer = await control.ask("call", name="alpha__echo")

        assert answer["error"]["code"] == frames.REFUSED
        assert "boom" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("actor", "method"),
    [("registry", "caps"), ("supervisor", "servers"), ("curator", "sessions")],
)
async def test_a_part_that_does_not_answer_is_unavailable(
    autojump_clock: MockClock, tmp_path: Path, actor: str, method: str
) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()
        world.scopes[actor].cancel()

        answer = await control.ask(method)

        assert answer["error"]["code"] == frames.UNAVAILABLE
        assert answer["error"]["data"] == {"code": "unavailable"}


async def test_the_status_waits_for_no_embedder(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()
        world.embedder.is_silent = True
        started_at = trio.current_time()

        status = await control.result("status")

        assert status["embedder"]["pid"] == 0
        assert trio.current_time() - started_at < 0.1


async def test_discover_ranks_and_names_what_is_missing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()

        found = await control.result("discover", intent="alpha things")

        [hit] = found["hits"]
        assert hit["name"] == "alpha"
        assert hit["score"] > 0.5
        world.embedder.is_loading = True
        by_words = await control.result("discover", intent="alpha things")
        assert [hit["name"] for hit in by_words["hits"]] == ["alpha"]
        refused = await control.ask("discover", intent="zebra stripes")
        assert refused["error"]["code"] == frames.UNAVAILABLE


async def test_events_are_streamed_by_topic_until_the_connection_closes(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        everything = await world.controller()
        assert (await control.result("events", topics=["server."]))["topics"] == ["server."]
        await everything.result("events")

        await client.capability("enable", "alpha")
        await trio.sleep(1)

        heard = {each["params"]["topic"] for each in control.heard}
        assert "server.started" in heard <= {"server.started", "server.listed"}
        assert control.heard[0]["params"]["event"]["name"] == "alpha"
        topics = {each["params"]["topic"] for each in everything.heard}
        assert {"server.started", "session.surface_changed"} <= topics
        await control.stream.aclose()
        await client.capability("disable", "alpha")
        assert await everything.result("servers")


async def test_stop_is_answered_and_heard(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()

        assert await control.result("stop") == {"schema": 1, "stopping": True}
        assert world.stops == [frames.StopParams()]


async def test_reload_answers_with_the_taps(autojump_clock: MockClock, tmp_path: Path) -> None:
    async with running_world(tmp_path) as world:
        control = await world.controller()
        # A folder is read in a thread, which no virtual clock waits for.
        autojump_clock.autojump_threshold = 1.0
        world.capability("gamma", "gamma")

        reloaded = await control.result("reload")

        assert reloaded["taps"][0]["routable"] == 4


async def test_a_control_connection_that_breaks_costs_no_other(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        async with running_world(tmp_path) as world:
            broken, control = await world.controller(), await world.controller()
            await broken.send(*[{"jsonrpc": "2.0", "id": n, "method": "caps"} for n in range(50)])
            await broken.stream.aclose()
            await trio.sleep(1)

            assert await control.result("servers")
    assert not any(entry["event"] == "task_failed" for entry in logs)


async def test_the_status_counts_calls_and_hooks_that_found_no_session(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client, control = await world.session("s"), await world.controller()
        await client.capability("enable", "alpha")
        await control.result("call", name="alpha__echo", arguments={"a": 1})
        await control.result("call", name="alpha__echo", arguments={"a": 2})
        await control.ask("hook", text="thanks", client="claude", client_session="one")
        # Both were started by this process, so a hook of it may mean either.
        await world.session("t")
        for other in ("two", "three"):
            await control.ask("hook", text="thanks", client="claude", client_session=other)

        status = await control.result("status")

        assert [entry["calls"] for entry in status["sessions"]] == [2, 0]
        assert status["hooks"] == [
            {"client": "claude", "linked": 1, "unlinked": 2, "reason": "ambiguous"}
        ]
