"""Changed settings: which apply at once, and which apply to new sessions only."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from capd.actors.settings import SettingsWatcher
from capd.adapters.live_settings import LiveSettings
from capd_protos import settings
from capd_protos.codec import MsgpackCodec
from capd_protos.types import ActorName
from hung_reads import HungReads

from .fakes import RecordingBus
from .world import World, running_world

SETTINGS = ActorName("settings")
EVENTS: MsgpackCodec[settings.SettingsChanged] = MsgpackCodec(settings.SettingsChanged)
REPLIES: MsgpackCodec[settings.Reply] = MsgpackCodec(settings.Reply)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "config"
    folder.mkdir()
    return folder / "config.toml"


async def reloaded(world: World) -> settings.SettingsDescribed:
    return await world.bus.ask(SETTINGS, settings.ReloadSettings(), REPLIES, float("inf"))


async def test_another_policy_holds_for_a_session_that_is_open(
    tmp_path: Path, config: Path
) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        editor = await world.session("s")
        await editor.capability("enable", "alpha")
        before = await editor.tools()

        config.write_text('[policy]\ndeny = ["alpha:echo"]\n')
        await reloaded(world)

        refused = await editor.ask("tools/call", name="alpha__echo", arguments={})
        listed = await editor.tools()
        config.write_text("")
        await reloaded(world)
        assert "alpha__echo" in before
        assert "alpha__echo" not in listed
        assert refused["result"]["_meta"]["capd/outcome"] == "refused"
        assert "denied by policy" in refused["result"]["content"][0]["text"]
        assert sorted(await editor.tools()) == sorted(before)


async def test_another_cap_holds_for_the_next_activation(tmp_path: Path, config: Path) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        editor = await world.session("s")
        await editor.capability("enable", "alpha")

        config.write_text("[sessions]\ncapabilities = 1\n")
        await reloaded(world)

        await editor.capability("enable", "beta")
        [entry] = await world.sessions()
        assert ([each.id.name for each in entry.active], entry.cap) == (["beta"], 1)


async def test_a_projects_file_holds_for_its_sessions_alone(tmp_path: Path, config: Path) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        (world.project / ".capd.toml").write_text('[policy]\ndeny = ["alpha:*"]\n')
        other = tmp_path / "other"
        other.mkdir()

        inside = await world.session("inside")
        outside = await world.session("outside", cwd=str(other))

        for each in (inside, outside):
            await each.capability("enable", "alpha")
        assert "alpha__echo" not in await inside.tools()
        assert "alpha__echo" in await outside.tools()


async def test_a_bad_file_changes_nothing_and_is_told(tmp_path: Path, config: Path) -> None:
    config.write_text('[policy]\ndeny = ["alpha:echo"]\n')
    async with running_world(tmp_path, is_live=True) as world:
        editor = await world.session("s")
        await editor.capability("enable", "alpha")

        config.write_text("[policy]\ndeny = 3\n")
        described = await reloaded(world)

        assert "alpha__echo" not in await editor.tools()
        wrong = "line 2, `policy.deny`: Expected `array`, got `int`"
        assert described.problems == [
            f"{config} is not used: {wrong} (its last good state stays in use)"
        ]


async def test_every_value_says_where_it_is_from(tmp_path: Path, config: Path) -> None:
    config.write_text("[servers]\nlinger = 5\n")
    async with running_world(tmp_path, is_live=True) as world:
        project = str(world.project)
        (world.project / ".capd.toml").write_text('domain = "devops"\n[sessions]\ntools = 3\n')
        control = await world.controller()

        told = await control.result("config", project=project)

        by_key = {each["key"]: (each["value"], each["origin"]) for each in told["values"]}
        assert by_key["servers.linger"] == (5.0, str(config))
        assert by_key["sessions.tools"] == (3, f"{project}/.capd.toml")
        assert by_key["domain"] == ("devops", f"{project}/.capd.toml")
        assert by_key["sessions.capabilities"] == (4, "")


async def test_a_server_that_is_denied_is_let_go_at_once(tmp_path: Path, config: Path) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        editor = await world.session("s")
        await editor.capability("enable", "alpha")

        config.write_text('[policy]\ndeny = ["alpha:*"]\n')
        await reloaded(world)

        with trio.fail_after(20):
            while await world.leases():
                await trio.sleep(0.01)


async def test_routing_that_is_switched_off_routes_no_further_message(
    tmp_path: Path, config: Path
) -> None:
    async with running_world(tmp_path, is_live=True) as world:
        editor = await world.session("s")
        await world.until_routing()

        config.write_text("[routing]\nenabled = false\n")
        await reloaded(world)

        taken = await editor.result("capd/turn", text="alpha one")
        assert (taken["outcome"], taken["reason"]) == ("abstain", "disabled")


@pytest.fixture
def reads() -> Iterator[HungReads]:
    made = HungReads()
    yield made
    made.answer()


async def test_files_are_followed_while_a_project_does_not_answer(
    tmp_path: Path, config: Path, reads: HungReads
) -> None:
    near, far = tmp_path / "near", tmp_path / "far"
    near.mkdir()
    far.mkdir()
    live = LiveSettings(config.parent, {}, None, reads)
    live.load()
    reads.hung.add(str(far))
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        await live.load_project(str(far))
        await live.load_project(str(near))
        async with bus.subscribe(EVENTS, "settings.changed") as events:
            await nursery.start(SettingsWatcher(bus, live).run)

            (near / ".capd.toml").write_text("[sessions]\ntools = 3\n")
            await events.__anext__()

        nursery.cancel_scope.cancel()
    assert live.of(str(near)).configuration.sessions.tools == 3


async def test_files_are_followed_while_a_projects_folder_cannot_be_looked_at(
    tmp_path: Path, config: Path
) -> None:
    near, far = tmp_path / "near", tmp_path / ("long" * 100)
    near.mkdir()
    live = LiveSettings(config.parent, {}, None)
    live.load()
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        await live.load_project(str(far))
        await live.load_project(str(near))
        async with bus.subscribe(EVENTS, "settings.changed") as events:
            await nursery.start(SettingsWatcher(bus, live).run)

            (near / ".capd.toml").write_text("[sessions]\ntools = 3\n")
            await events.__anext__()

        nursery.cancel_scope.cancel()
    assert live.of(str(near)).configuration.sessions.tools == 3
