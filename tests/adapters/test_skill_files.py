"""Skill files: which are read, and that a bad one costs only itself."""

import os
from pathlib import Path

import pytest

from capd.adapters import skill_files
from capd.adapters.skill_files import read_skills, skill_body
from capd.adapters.tap_files import TapPlace, TapUnreadableError, read_tap
from capd_protos.types import Finding, SkillSpec, TapName

MINE = TapName("mine")
TEXT = "---\nname: {name}\ndescription: d\n---\nThe text.\n"


def skill(tap: Path, name: str, text: str = TEXT) -> Path:
    file = tap / "skills" / name / "SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(text.replace("{name}", name))
    return file


def names(tap: Path) -> list[str]:
    return [read.skill.name for read in read_skills(MINE, tap)[0] if read.skill]


def test_skills_are_read_by_folder_and_what_else_is_there_is_nothing(tmp_path: Path) -> None:
    for name in ("b", "a"):
        skill(tmp_path, name)
    (tmp_path / "skills" / "notes").mkdir()
    (tmp_path / "skills" / "README.md").write_text("not a skill")

    reads, findings = read_skills(MINE, tmp_path)

    files = [str(tmp_path / "skills" / name / "SKILL.md") for name in ("a", "b")]
    assert [read.skill for read in reads] == [
        SkillSpec(MINE, "a", files[0], "d"),
        SkillSpec(MINE, "b", files[1], "d"),
    ]
    assert findings == ()
    assert skill_body(Path(files[0])) == "The text."


def test_a_tap_of_skills_alone_is_a_tap(tmp_path: Path) -> None:
    with pytest.raises(TapUnreadableError):
        read_tap(TapPlace(MINE, tmp_path))
    skill(tmp_path, "a")

    read = read_tap(TapPlace(MINE, tmp_path))

    assert ([each.name for each in read.skills], read.reads) == (["a"], ())


def test_a_changed_text_is_another_revision_of_the_tap(tmp_path: Path) -> None:
    file = skill(tmp_path, "a")
    before = read_tap(TapPlace(MINE, tmp_path)).revision
    file.write_text(file.read_text() + "More.\n")

    after = read_tap(TapPlace(MINE, tmp_path)).revision

    assert before != after


def test_what_cannot_be_read_is_a_finding_and_waits_for_nobody(tmp_path: Path) -> None:
    skill(tmp_path, "good")
    root = tmp_path / "skills"
    for name in ("folder", "loop", "pipe", "huge", "binary"):
        (root / name).mkdir()
    (root / "folder" / "SKILL.md").mkdir()
    (root / "loop" / "SKILL.md").symlink_to(root / "loop" / "SKILL.md")
    (root / "endless").symlink_to(root / "endless")
    os.mkfifo(root / "pipe" / "SKILL.md")
    (root / "huge" / "SKILL.md").write_bytes(b"---\nname: huge\n---\n" + b"x" * (10 << 20))
    (root / "binary" / "SKILL.md").write_bytes(os.urandom(1000) + b"\xff")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/\xff/SKILL.md")).write_text(TEXT)

    reads, findings = read_skills(MINE, tmp_path)

    reasons = {finding.path: finding.reason for read in reads for finding in read.findings}
    binary = reasons.pop("skills/binary/SKILL.md")
    assert reasons == {
        "skills/endless/SKILL.md": "left out: Too many levels of symbolic links",
        "skills/folder/SKILL.md": "left out: Is a directory",
        "skills/huge/SKILL.md": "left out: it is larger than 256 KiB",
        "skills/loop/SKILL.md": "left out: Too many levels of symbolic links",
        "skills/pipe/SKILL.md": "left out: it is not a file",
        "skills/\ufffd/SKILL.md": "left out: no UTF-8 path",
    }
    assert binary.startswith("left out: ")
    assert (names(tmp_path), findings) == (["good"], ())


def test_a_folder_of_very_many_is_read_up_to_its_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_files, "MOST_SKILLS", 3)
    monkeypatch.setattr(skill_files, "MOST_ENTRIES", 5)
    for number in range(5):
        skill(tmp_path, f"s{number}")
    (tmp_path / "skills" / "zz").mkdir()

    reads, findings = read_skills(MINE, tmp_path)

    assert len(reads) == 3
    assert findings[0] == Finding("skills", 0, "more than 5 entries: some are not looked at")
    assert findings[1].reason.startswith("more than 3 skills: ")


def test_a_skill_that_went_has_no_text(tmp_path: Path) -> None:
    file = skill(tmp_path, "a")
    file.unlink()

    text = skill_body(file)

    assert text is None
