"""The effects of memories are saved soon, and saved again after a failure."""

from pathlib import Path

import trio
from trio.testing import MockClock

from capd.actors.session.memory_catalog import MemoryCatalog
from capd.adapters.memory_outcome_file import MemoryOutcomeFile
from capd.core.memories.outcomes import MemoryOutcome, Outcomes
from capd_protos.types import MemorySpec, TapName

from .fakes import RecordingBus

SLOW = MemorySpec(TapName("~"), "slow", "declarative", "Alpha is slow.")


async def test_what_could_not_be_written_is_written_when_there_is_room(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    # A file where the folder is to be: nothing can be written below it.
    state = tmp_path / "state"
    state.write_bytes(b"")
    file = MemoryOutcomeFile(state / "memories.json")
    async with RecordingBus() as bus, trio.open_nursery() as nursery:
        catalog = MemoryCatalog(bus, store=file)
        nursery.start_soon(catalog.run, lambda: None)
        catalog.outcomes.add(SLOW, delivered=1)
        catalog.save_soon()
        await trio.sleep(1)
        full = catalog.problem
        state.unlink()

        await trio.sleep(60)
        found = await file.load()
        nursery.cancel_scope.cancel()

    assert full.startswith("what came of memories cannot be written down at present; look for room")
    assert catalog.problem == ""
    assert found == Outcomes({"~/slow": MemoryOutcome(delivered=1)})


async def test_a_file_that_was_set_aside_is_told(tmp_path: Path) -> None:
    path = tmp_path / "memories.json"
    path.write_bytes(b"{")
    async with RecordingBus() as bus:
        catalog = MemoryCatalog(bus, store=MemoryOutcomeFile(path))

        await catalog.load()

    assert catalog.problem.startswith(f"{path} cannot be used: Input data was truncated; it is set")
