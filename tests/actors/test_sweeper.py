"""Cached files of servers that no longer exist are removed; those of others stay."""

from pathlib import Path

import trio
from trio.testing import MockClock

from capd.actors.cache_cleanup import Sweeper
from capd.adapters.leftover_files import LeftoverFiles
from capd.adapters.trust.trust_file import TrustFile
from capd.core.records.retention import DAY

from .fakes import RecordingBus
from .world import World, running_world

LONG_AFTER = 4e9
"""Seconds since the epoch: everything is old then."""


def left(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path != cache)


def sweeper_of(world: World, cache: Path) -> Sweeper:
    trust = TrustFile(world.tap_list.with_name("trust.json"))
    return Sweeper(world.bus, LeftoverFiles(cache, trust), now=lambda: LONG_AFTER)


async def test_the_folder_of_a_server_that_runs_stays(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        client = await world.session("s")
        await client.capability("enable", "alpha")
        [running] = [str(entry.identity) for entry in await world.servers()]
        cache = tmp_path / "cache-of-servers"
        for name in (running, "0123456789abcdef"):
            (cache / "sandbox" / name / "tmp").mkdir(parents=True)
        cache.joinpath("vectors.0123456789ab.bin").touch()

        await sweeper_of(world, cache).sweep()

        assert left(cache) == ["sandbox", f"sandbox/{running}", f"sandbox/{running}/tmp"]


async def test_where_it_cannot_be_told_what_runs_nothing_is_removed(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    async with running_world(tmp_path) as world:
        cache = tmp_path / "cache-of-servers"
        (cache / "sandbox" / "0123456789abcdef").mkdir(parents=True)
        world.scopes["supervisor"].cancel()

        await sweeper_of(world, cache).sweep()

        assert left(cache) == ["sandbox", "sandbox/0123456789abcdef"]


async def test_it_is_done_soon_after_the_start_and_daily(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    swept: list[float] = []

    async def note() -> None:
        swept.append(trio.current_time())
        if len(swept) == 1:
            # Once over which nobody thought: the next day comes all the same.
            raise KeyError("planted")

    files = LeftoverFiles(tmp_path / "nothing", TrustFile(tmp_path / "trust.json"))
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        began = trio.current_time()

        nursery.start_soon(Sweeper(bus, files, [note]).run)
        await trio.sleep(2.5 * DAY)
        nursery.cancel_scope.cancel()

    assert [round((at - began) / DAY, 2) for at in swept] == [0.0, 1.0, 2.0]
