"""Runs on disk: what was written is read again, and what is damaged is one clear error."""

import stat
from pathlib import Path

import pytest

from capd.adapters.scripts.run_files import RunFiles, decoded, encoded
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


async def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "scripts")
    path = files.path("s", "1")

    await files.replace(path, FRAMES)
    for frame in LATER:
        await files.append(path, frame)
    found = await files.load(path)

    assert found is not None
    assert (found.begun, found.suspended) == (FRAMES[0], FRAMES[1])
    assert found.run.due() == {0: Answer("value", b"1", 5, 2.0)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


async def test_a_script_that_has_ended_leaves_no_file(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "scripts")
    path = files.path("s", "1")
    await files.replace(path, FRAMES)

    await files.remove(path)

    assert await files.load(path) is None
    assert list(path.parent.iterdir()) == []


def test_a_frame_that_was_cut_off_is_left_out() -> None:
    data = encoded([*FRAMES, *LATER])

    assert decoded(data[:-1]) == [*FRAMES, LATER[0]]


def test_every_other_damage_is_said() -> None:
    data = bytearray(encoded([*FRAMES, *LATER]))
    data[60] ^= 1

    with pytest.raises(DamagedRunError, match="digest"):
        decoded(bytes(data))


async def test_a_file_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "scripts")
    path = files.path("s", "1")
    await files.replace(path, FRAMES)
    path.chmod(0o666)

    with pytest.raises(DamagedRunError, match="somebody else can write it"):
        await files.load(path)


async def test_files_are_apart_by_session_and_request(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)

    assert len({files.path("s", "1"), files.path("s", '"1"'), files.path("s1", "")}) == 3
