"""Journals of runs on disk: written frames are read again; damage is one clear error."""

import stat
from functools import partial
from pathlib import Path

import msgspec
import pytest

from capd.adapters.scripts.run_files import RunFiles, RunJournal, decoded, encoded
from capd.core.scripts.run import (
    Answer,
    Answered,
    Begun,
    DamagedRunError,
    Frame,
    IssuedCall,
    Sent,
    Suspended,
)
from capd_protos.types import WireName

FRAMES: list[Frame] = [
    Begun("s", "1", "code", b"{}", "engine", 1.0),
    Suspended(b"snapshot", [IssuedCall(0, WireName("a__b"), b"{}")], []),
]
LATER: list[Frame] = [Sent(0), Answered(0, Answer("value", b"1", 5, 2.0))]


BEGUN = Begun("s", "1", "code", b"{}", "engine", 1.0)
SUSPENDED = Suspended(b"snapshot", [IssuedCall(0, WireName("a__b"), b"{}")], [])


async def written(folder: Path) -> tuple[RunFiles, RunJournal]:
    """Return a run with one call that has been sent."""
    files = RunFiles(folder)
    journal = RunJournal(files, BEGUN)
    await journal.sent(0, lambda: msgspec.structs.replace(SUSPENDED, sent=[0]))
    return files, journal


async def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    files, journal = await written(tmp_path / "scripts")
    await journal.answered(0, Answer("value", b"1", 5, 2.0))

    found = await files.load(journal.path)

    assert found is not None
    assert (found.begun, found.suspended.snapshot) == (BEGUN, b"snapshot")
    assert found.run.due() == {0: Answer("value", b"1", 5, 2.0)}
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.path.parent.stat().st_mode) == 0o700


async def test_the_last_suspension_counts_wherever_the_file_is_cut_off(tmp_path: Path) -> None:
    files, journal = await written(tmp_path)
    whole = len(journal.path.read_bytes())
    calls = [IssuedCall(n, WireName("a__b"), b"{}") for n in (0, 1)]
    await journal.sent(1, lambda: Suspended(b"later", calls, [], sent=[0, 1]))
    data = journal.path.read_bytes()

    for length in range(whole, len(data) + 1):
        journal.path.write_bytes(data[:length])
        found = await files.load(journal.path)

        assert found is not None
        is_whole = length == len(data)
        assert found.suspended.snapshot == (b"later" if is_whole else b"snapshot")
        # What was sent is never sent again.
        assert 0 in found.run.due()


async def test_a_file_that_grows_long_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capd.adapters.scripts.run_files.LONG_FILE_BYTES", 1000)
    files, journal = await written(tmp_path)

    for n in range(1, 60):
        call = IssuedCall(n, WireName("a__b"), b"{}")
        await journal.sent(n, partial(Suspended, b"s", [call], [], sent=[n]))

    assert journal.path.stat().st_size < 2000
    found = await files.load(journal.path)
    assert found is not None
    assert list(found.run.due()) == [59]


async def test_a_script_that_has_ended_leaves_no_file(tmp_path: Path) -> None:
    files, journal = await written(tmp_path / "scripts")

    await journal.remove()

    assert await files.load(journal.path) is None
    assert list(journal.path.parent.iterdir()) == []


def test_a_frame_that_was_cut_off_is_left_out() -> None:
    data = encoded([*FRAMES, *LATER])

    assert decoded(data[:-1]) == [*FRAMES, LATER[0]]


def test_every_other_damage_is_said() -> None:
    data = bytearray(encoded([*FRAMES, *LATER]))
    data[60] ^= 1

    with pytest.raises(DamagedRunError, match="digest"):
        decoded(bytes(data))


async def test_a_file_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    files, journal = await written(tmp_path)
    journal.path.chmod(0o666)

    with pytest.raises(DamagedRunError, match="somebody else can write it"):
        await files.load(journal.path)


async def test_files_are_apart_by_session_and_request(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)

    assert len({files.path("s", "1"), files.path("s", '"1"'), files.path("s1", "")}) == 3
