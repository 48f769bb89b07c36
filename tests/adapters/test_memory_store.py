"""The user's own memory files are checked, written atomically, and set aside when removed."""

import stat
from pathlib import Path

import pytest

from capd.adapters.memory_files import read_memories
from capd.adapters.memory_outcome_file import MemoryOutcomeFile
from capd.adapters.memory_store import MemoryStore, NotStoredError
from capd.core.memories.memory_format import OWN
from capd.core.memories.memory_names import made_name
from capd.core.memories.outcomes import MemoryOutcome, Outcomes

TEXT = 'kind = "declarative"\ncontent = "c"\ncapability = "git"\n'


def test_what_is_added_is_read_and_only_its_owner_may(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path / "memories")

    file = store.add("slow", TEXT)

    reads, _ = read_memories(OWN, store.folder)
    assert [read.memory.name for read in reads if read.memory] == store.names() == ["slow"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert store.text("slow") == (file, TEXT)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("slow", TEXT, "there is a memory 'slow' already: capd memory edit slow"),
        ("../up", TEXT, "'../up' is not a valid name"),
        ("", TEXT, "'' is not a valid name"),
        ("odd", "kind = 3", "not written: line 1: `kind` is not a text"),
        ("odd", TEXT.replace('"c"', '"the value is hunter2hunter2"'), "not written: it holds the"),
    ],
)
def test_what_would_be_left_out_is_not_written(
    tmp_path: Path, name: str, text: str, reason: str
) -> None:
    store = MemoryStore(tmp_path, lambda: ["hunter2hunter2"])
    store.add("slow", TEXT)

    with pytest.raises(NotStoredError) as refused:
        store.add(name, text)

    assert str(refused.value).startswith(reason)
    assert [file.name for file in tmp_path.iterdir()] == ["slow.toml"]


def test_a_text_that_is_wrong_replaces_nothing(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    store.add("slow", TEXT)

    with pytest.raises(NotStoredError):
        store.replace("slow", "kind = 3")

    assert store.text("slow")[1] == TEXT


def test_what_is_forgotten_is_put_away_and_read_no_more(tmp_path: Path) -> None:
    store = MemoryStore(tmp_path)
    store.add("slow", TEXT)

    kept = store.forget("slow")

    assert kept.read_text() == TEXT
    assert (store.names(), read_memories(OWN, tmp_path)) == ([], ((), ()))
    with pytest.raises(NotStoredError, match="no memory 'slow' of your own"):
        store.forget("slow")


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("Use goals.", "use-goals"),
        ("Ärger mit Labels", "arger-mit-labels"),
        ("标签", "memory"),
        ("one two three four five six seven eight nine", "one-two-three-four-five-six-seven-eight"),
        ("taken", "taken-2"),
    ],
)
def test_a_name_is_made_of_what_is_said(content: str, name: str) -> None:
    assert made_name(content, {"taken"}) == name


async def test_what_came_of_memories_is_found_again(tmp_path: Path) -> None:
    file = MemoryOutcomeFile(tmp_path / "state" / "memories.json")
    outcomes = Outcomes({"~/slow": MemoryOutcome(3, 2, 1)})
    await file.save(outcomes)

    assert await MemoryOutcomeFile(tmp_path / "state" / "memories.json").load() == outcomes


@pytest.mark.parametrize("content", [b"{", b'{"version": 9, "memories": {}}'])
async def test_a_file_that_cannot_be_read_is_set_aside(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "memories.json").write_bytes(content)

    found = await MemoryOutcomeFile(tmp_path / "memories.json").load()

    assert found == Outcomes()
    assert (tmp_path / "memories.json.bad").read_bytes() == content
