"""The file of routing labels is complete or absent, private, and has no texts."""

from pathlib import Path

import pytest

from capd.adapters.learning_file import MOST_BYTES, LearningFile
from capd.core.routing.learning import MOST_LABELS
from capd_protos.types import RoutingLabel

LABELS = [RoutingLabel(12.5, "mine/git", "enabled", 0.5, "0123456789abcdef", "00112233")]


async def test_what_was_saved_is_loaded_by_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "state" / "learning.json"
    await LearningFile(path).save(LABELS)

    loaded = await LearningFile(path).load()

    assert loaded == LABELS
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["learning.json"]


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":2,"labels":[]}', b"[" * 9999])
async def test_a_bad_file_is_set_aside_and_a_fresh_one_begun(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "learning.json"
    path.write_bytes(data)
    file = LearningFile(path)

    loaded = await file.load()
    await file.save(LABELS)

    assert (loaded, await LearningFile(path).load()) == ([], LABELS)
    assert "learning.json.bad" in file.problem


async def test_a_file_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "learning.json"
    await LearningFile(path).save(LABELS)
    path.chmod(0o620)

    assert await LearningFile(path).load() == []


async def test_as_many_labels_as_there_may_be_have_room(tmp_path: Path) -> None:
    name = f"{'t' * 120}/{'n' * 120}"
    most = [
        RoutingLabel(1.7e9 + at, name, "disabled", 0.1234, "f" * 16, "0" * 16)
        for at in range(MOST_LABELS)
    ]
    path = tmp_path / "learning.json"

    is_kept = await LearningFile(path).save(most)

    assert is_kept
    assert path.stat().st_size < MOST_BYTES / 2
