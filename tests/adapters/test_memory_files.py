"""Memory files: which are read, and that a bad one costs only itself."""

import os
from pathlib import Path

import pytest

from capd.adapters import memory_files
from capd.adapters.memory_files import read_memories
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.trust.project_taps import read_project
from capd.adapters.trust.trust_file import TrustFile
from capd_protos.types import Finding, MemorySpec, TapName

MINE = TapName("mine")
TEXT = 'kind = "declarative"\ncontent = "c"\ncapability = "git"\n'


def memory(folder: Path, name: str, text: str = TEXT) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


def spec(file: Path) -> MemorySpec:
    return MemorySpec(MINE, file.stem, "declarative", "c", capability="git", file=str(file))


def test_memories_are_read_by_file_and_what_else_is_there_is_nothing(tmp_path: Path) -> None:
    files = [memory(tmp_path, name) for name in ("b.toml", "a.toml")]
    for other in ("README.md", ".hidden.toml", "notes.txt"):
        memory(tmp_path, other, "no memory")

    reads, findings = read_memories(MINE, tmp_path)

    assert [read.memory for read in reads] == [spec(file) for file in sorted(files)]
    assert findings == ()


def test_no_folder_is_no_memories(tmp_path: Path) -> None:
    assert read_memories(MINE, tmp_path / "none") == ((), ())


def test_a_pipe_and_a_folder_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.toml")
    (tmp_path / "b.toml").mkdir()

    reads, _ = read_memories(MINE, tmp_path)

    assert [(read.memory, read.findings) for read in reads] == [
        (None, (Finding("memories/a.toml", 0, "left out: it is not a file"),)),
        (None, (Finding("memories/b.toml", 0, "left out: Is a directory"),)),
    ]


def test_of_two_files_of_one_name_the_first_counts(tmp_path: Path) -> None:
    memory(tmp_path, "a.toml")
    memory(tmp_path, "a.md", "---\nkind: declarative\ncapability: git\n---\nc\n")

    reads, _ = read_memories(MINE, tmp_path)

    assert [read.path for read in reads if read.memory] == ["memories/a.md"]
    assert reads[1].findings == (
        Finding("memories/a.toml", 1, "left out: memories/a.md has its name already"),
    )


def test_of_too_many_the_rest_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_files, "MOST_MEMORIES", 1)
    for name in ("a.toml", "b.toml"):
        memory(tmp_path, name)

    reads, findings = read_memories(MINE, tmp_path)

    reason = "more than 1 memories: those from 'b.toml' on are left out"
    assert len(reads) == 1
    assert findings == (Finding("memories", 0, reason),)


def test_a_tap_of_memories_alone_is_a_tap_and_another_with_others(tmp_path: Path) -> None:
    file = memory(tmp_path / "memories", "a.toml")
    before = read_tap(TapPlace(MINE, tmp_path))
    memory(tmp_path / "memories", "a.toml", TEXT + "priority = 2\n")

    after = read_tap(TapPlace(MINE, tmp_path))

    assert before.memories == (spec(file),)
    assert before.revision != after.revision


def test_a_projects_memories_are_told_once_they_are_trusted_as_they_are(tmp_path: Path) -> None:
    file = memory(tmp_path / ".capd" / "memories", "a.toml")
    trust = TrustFile(tmp_path / "trust.json")
    read = read_project(str(tmp_path), trust)
    (told,) = read.startables
    trust.write({str(tmp_path): {told.digest: told.agreement()}})

    trusted = read_project(str(tmp_path), trust)
    memory(file.parent, "a.toml", TEXT + "priority = 2\n")
    changed = read_project(str(tmp_path), trust)

    usable = [each.usable for each in (read, trusted, changed)]
    assert [len(tap.memories) for tap in usable if tap] == [0, 1, 0]
    assert changed.startables[0].state(changed.agreed) == "changed"
