"""The file of client habits is complete or absent, private, and set aside if damaged."""

from pathlib import Path

import pytest

from capd.adapters.habit_file import HabitFile
from capd.core.sessions.habits import Habit

HABITS = [Habit("zed", "1.2", relists=True), Habit("codex", "", relists=False)]


async def test_what_was_saved_is_loaded_by_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "state" / "habits.json"
    await HabitFile(path).save(HABITS)

    loaded = await HabitFile(path).load()

    assert loaded == HABITS
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["habits.json"]


async def test_no_file_is_no_habit(tmp_path: Path) -> None:
    path = tmp_path / "habits.json"

    loaded = await HabitFile(path).load()

    assert (loaded, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"version":1,"clients":[{}]}', b'{"version":2,"clients":[]}', b"[" * 9999]
)
async def test_a_bad_file_is_set_aside_and_a_fresh_one_begun(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "habits.json"
    path.write_bytes(data)

    loaded = await HabitFile(path).load()
    await HabitFile(path).save(HABITS)

    assert loaded == []
    assert (tmp_path / "habits.json.bad").read_bytes() == data
    assert await HabitFile(path).load() == HABITS


async def test_a_folder_that_cannot_be_written_costs_no_more_than_the_habits(
    tmp_path: Path,
) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    file = HabitFile(tmp_path / "state" / "habits.json")

    await file.save(HABITS)

    assert await file.load() == []
