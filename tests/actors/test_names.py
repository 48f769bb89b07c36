"""A name in another spelling is recognised; a similar name of something else is not."""

from pathlib import Path

from trio.testing import MockClock

from capd_protos import curator
from capd_protos.types import SessionKey

from .test_single_tools import known
from .world import CURATOR, CURATOR_REPLIES, OWN, running_world


async def test_a_capability_is_switched_on_and_off_however_it_is_spelled(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")

        said = [
            (await client.capability("enable", "ALPHA"))[0].partition(" Tools")[0],
            (await client.capability("enable", "mine/Alp"))[0].partition(" Its")[0],
            (await client.capability("disable", "alphas"))[0].partition(" No longer")[0],
        ]

        assert said == [
            "Capability 'alpha' is on.",
            "Capability 'alpha' is already on.",
            "Capability 'alpha' is off.",
        ]


async def test_what_is_off_is_not_taken_for_what_is_on_and_begins_alike(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        world.capability("alpha-more", "alpha")
        await world.reload()
        client = await world.session("s")
        await client.capability("enable", "alpha-more")

        said = [
            await client.capability("disable", "alpha"),
            await client.capability("disable", "al"),
        ]

        assert said == [
            ("Capability 'alpha' is not on.", False),
            (
                (
                    "Capability 'al' cannot be used: no tap has a capability 'al', and several "
                    "fit. Near names: alpha, alpha-more."
                ),
                True,
            ),
        ]
        assert len(await client.tools()) > len(OWN)


async def test_a_tool_is_called_however_it_is_spelled_and_not_by_a_part_of_its_name(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await known(world, "alpha")
        client = await world.session("s")

        said = [
            await client.call("tool_call", name=name, arguments={})
            for name in ("Alpha Echo", "alpha__ech")
        ]

        assert [is_error for _, is_error in said] == [False, True]
        assert "Near names: alpha__echo" in said[1][0]


async def test_a_session_is_found_however_its_key_is_spelled_and_not_by_a_part_of_it(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        await world.session("editor-one")
        await world.session("editor-two")

        said = [
            await world.bus.ask(
                CURATOR, curator.ListTools(SessionKey(key)), CURATOR_REPLIES, timeout=5
            )
            for key in ("Editor One", "editor_two", "editor-t", "agent")
        ]

        assert [getattr(each, "session", None) for each in said[:2]] == ["editor-one", "editor-two"]
        assert said[2:] == [
            curator.CuratorRefused(
                "session_unknown",
                "no session 'editor-t'. Near names: editor-two, editor-one.",
            ),
            curator.CuratorRefused(
                "session_unknown", "no session 'agent'. Sessions: editor-one, editor-two."
            ),
        ]
