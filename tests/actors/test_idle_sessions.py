"""An idle session costs little, and answers as before when its client speaks again."""

from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from capd.actors.session.session import Session
from capd.actors.session.store import LOOK_AT_CLOCK
from capd.adapters import platform
from capd.adapters.clients.parking import QUIET
from capd_protos import curator
from capd_protos.types import SessionKey

from .test_sessions import Failing
from .world import CURATOR, CURATOR_REPLIES, OWN, World, running_world, world

ALPHA = ["alpha__echo", "alpha__die"]

pytestmark = pytest.mark.skipif(
    platform.readiness_queue() is None, reason="this system does not park connections"
)


async def silence(world: World) -> None:
    """Let every client be idle until its connection is parked."""
    await trio.sleep(QUIET * 2.5)
    connected = [each for each in await world.sessions() if each.is_connected]
    assert len(world.host._parking) == len(connected)


def session_of(world: World, key: str) -> Session:
    return next(each for each in world.host._sessions.sessions() if each.place.key == key)


def made(session: Session) -> set[str]:
    """Return the parts that a session has."""
    return {name for name in vars(session._parts) if session._parts.is_made(name)} - {
        *("context", "profile", "hosting", "_owner_ref"),
    }


async def test_after_a_silence_a_session_has_its_list_its_leases_and_its_answers(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        before = (await client.result("tools/list"), await world.leases(), await world.sessions())

        await silence(world)

        after = (await client.result("tools/list"), await world.leases(), await world.sessions())
        assert after[:2] == before[:2]
        assert (after[2][0].active, after[2][0].is_connected) == (before[2][0].active, True)
        assert await client.call("alpha__echo", a=1) == ('{"a": 1}', False)


async def test_a_silent_client_hears_of_changes_and_finds_them(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.tools()
        await silence(world)

        await world.bus.ask(
            CURATOR, curator.EnableCapability(SessionKey("s"), "alpha"), CURATOR_REPLIES, 1000.0
        )
        await trio.sleep(0.1)

        assert client.list_changes == 1
        assert len(world.host._parking) == 1
        assert await client.tools() == OWN + ALPHA


async def test_a_silent_client_hears_of_the_resources_that_it_subscribed_to(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        connection = session_of(world, "s").connection
        connection.subscriptions["x:1"] = None
        await silence(world)

        for uri in ("x:1", "x:2"):
            connection.tell("notifications/resources/updated", b'{"uri":"%s"}' % uri.encode())
        await trio.sleep(0.1)

        updated = [each["params"] for each in client.heard if "resources" in each["method"]]
        assert updated == [{"uri": "x:1"}]


async def test_a_silent_client_is_told_when_its_session_is_resumed_elsewhere(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        first = await world.session("s")
        await first.capability("enable", "alpha")
        await silence(world)

        second = await world.session("s", resume=first.welcome["resume"])
        await first.is_closed.wait()

        assert first.heard[-1]["reason"] == "resumed elsewhere"
        await trio.sleep(100)
        assert await second.tools() == OWN + ALPHA
        assert await world.leases() == {"alpha": ["s"]}


async def test_the_session_of_a_silent_client_that_leaves_holds_nothing(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await silence(world)

        await client.stream.aclose()
        await trio.sleep(31)

        assert (await world.sessions(), await world.leases()) == ([], {})


async def test_a_silent_client_learns_that_the_curator_has_failed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with world(tmp_path) as running:
        host = running.host
        failing = Failing(host)
        running.host = failing  # type: ignore[assignment]  # it runs in the host's place
        await running.start()
        client = await running.session("s")
        await trio.sleep(QUIET * 2.5)
        assert len(host._parking) == 1

        failing.bug.set()

        await client.is_closed.wait()


async def test_a_session_that_says_nothing_has_few_parts_whatever_others_do(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        silent, other = await world.session("silent"), await world.session("other")
        await silent.tools()

        await other.capability("enable", "alpha")
        await other.capability("disable", "alpha")
        await trio.sleep(60)
        await world.reload()
        await world.sessions()
        await silence(world)

        assert made(session_of(world, "silent")) <= {"denials", "index", "initial_tools", "tokens"}


async def test_what_is_equal_in_two_sessions_exists_once(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        for key in ("a", "b"):
            client = await world.session(key)
            await client.tools()

        await silence(world)

        a, b = session_of(world, "a"), session_of(world, "b")
        assert a.view.own is b.view.own
        assert a.view.policy is b.view.policy
        assert a.connection.client.version is b.connection.client.version


@pytest.mark.parametrize("part", ["memories", "requests", "results", "conversations", "activation"])
async def test_a_part_changes_nothing_that_is_told_or_saved_by_being_created(
    autojump_clock: MockClock, tmp_path: Path, part: str
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("s")
        session = session_of(world, "s")
        told, saved = session.entry(1.0, 0.0, 1), session.snapshot.record("")
        assert part not in made(session)

        getattr(session._parts, part)

        again = session.snapshot.record("")
        assert session.entry(1.0, 0.0, 1) == told
        assert (again.subscriptions, again.tasks, again.apps, again.conversation) == (
            *(saved.subscriptions, saved.tasks, saved.apps, saved.conversation),
        )
        assert (again.memories, again.memory_tokens, again.is_index_told) == (
            *(saved.memories, saved.memory_tokens, saved.is_index_told),
        )


async def test_what_a_capability_brings_is_announced_without_the_part_that_reads_lists(
    tmp_path: Path,
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.tools()

        await client.capability("enable", "alpha")

        assert "requests" not in made(session_of(world, "s"))


async def test_a_session_without_a_change_is_saved_again(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        await silence(world)
        before = world.kept.records.pop(SessionKey("s"))

        # A clock that was set is a reason to save again, too.
        world.host._saver._now = lambda: 0.0
        await trio.sleep(2 * LOOK_AT_CLOCK)

        after = world.kept.records[SessionKey("s")]
        assert after.activations == before.activations
        assert len(world.host._parking) == 1
