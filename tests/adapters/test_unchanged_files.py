"""A reload reads only changed files, and misses no change."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from capd.adapters.parsed_taps import ParsedTaps
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.unchanged_files import (
    FolderMarks,
    UnchangedFiles,
    mark_of_file,
    mark_of_folder,
)
from capd_protos.types import TapName
from whole_daemon import wait_for

CONFIG = 'triggers = ["one {0}", "two {0}", "three {0}"]\n'
PROVIDER = '[[mcp.servers]]\nname = "{0}"\ncommand = "{0}"\n'


@pytest.fixture
def place(tmp_path: Path) -> TapPlace:
    for name in ("alpha", "beta"):
        folder = tmp_path / "capabilities" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(CONFIG.format(name))
        (folder / "first.toml").write_text(PROVIDER.format("first"))
        (folder / "second.toml").write_text(PROVIDER.format("second"))
        (folder / "default.toml").symlink_to("first.toml")
    settle(tmp_path)
    return TapPlace(TapName("mine"), tmp_path)


def settle(root: Path) -> None:
    """Wait until no file is so new that it may still change."""
    for folder in (root / "capabilities").iterdir():
        assert wait_for(partial(mark_of_folder, str(folder), ".toml"))


def replace_link(folder: Path) -> None:
    (folder / "default.toml").unlink()
    (folder / "default.toml").symlink_to("second.toml")


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: (folder / "config.toml").write_text(CONFIG.format("gamma")),
    # Of the same length: neither the names nor the sizes are others.
    lambda folder: (folder / "config.toml").write_text(CONFIG.format("alphA")),
    replace_link,
    lambda folder: (folder / "first.toml").unlink(),
    lambda folder: (folder / "first.toml").write_text("= broken"),
]


def test_what_has_not_changed_is_not_read_again(place: TapPlace) -> None:
    known = ParsedTaps()

    first, again = read_tap(place, known=known), read_tap(place, known=known)

    assert again == first
    assert [a is b for a, b in zip(again.reads, first.reads, strict=True)] == [True, True]


@pytest.mark.parametrize("is_later", [False, True], ids=["at once", "later"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_read_and_everything_else_is_as_it_was(
    place: TapPlace, change: Callable[[Path], object], *, is_later: bool
) -> None:
    known = ParsedTaps()
    first = read_tap(place, known=known)
    change(place.path / "capabilities" / "alpha")
    if is_later:
        # What was written a moment ago is read in any case.
        settle(place.path)

    again = read_tap(place, known=known)

    assert again == read_tap(place)
    assert again.reads[0] != first.reads[0]
    assert again.reads[1] is first.reads[1]
    assert again.revision != first.revision


def test_a_capability_that_is_gone_is_forgotten(place: TapPlace) -> None:
    known = ParsedTaps()
    read_tap(place, known=known)
    known.keep()
    folder = place.path / "capabilities" / "alpha"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()

    again = read_tap(place, known=known)
    known.keep()

    assert [str(each.id.name) for each in again.capabilities] == ["beta"]


def test_a_file_that_was_written_a_moment_ago_has_no_mark(tmp_path: Path) -> None:
    file = tmp_path / "new"
    file.write_text("")
    in_an_hour = file.stat().st_mtime + 3600

    os.utime(file, (in_an_hour, in_an_hour))

    assert mark_of_file(str(file)) == 0
    assert mark_of_file(str(tmp_path / "absent")) == 0


MORE_CHANGES: list[Callable[[Path], object]] = [
    *CHANGES,
    lambda folder: (folder / "third.toml").write_text(PROVIDER.format("third")),
    lambda folder: (folder / "second.toml").rename(folder / "other.toml"),
    lambda folder: (folder / "second.toml").replace(folder / "first.toml"),
]


@pytest.mark.parametrize("change", MORE_CHANGES)
def test_a_known_folder_has_the_mark_of_one_that_is_listed_again(
    place: TapPlace, change: Callable[[Path], object]
) -> None:
    folder, marks = place.path / "capabilities" / "alpha", FolderMarks()
    first = [marks.mark(str(folder), ".toml") for _ in range(3)]
    change(folder)
    # While it may still be changing.
    marks.mark(str(folder), ".toml")
    settle(place.path)

    again = marks.mark(str(folder), ".toml")

    assert first == [first[0]] * 3
    assert again == mark_of_folder(str(folder), ".toml")
    assert again not in {0, first[0]}


def test_what_was_made_without_a_mark_is_not_remembered() -> None:
    made: UnchangedFiles[str] = UnchangedFiles()
    made.put("a", 0, "first")
    made.put("b", 7, "second")

    assert (made.get("a", 0), made.get("b", 7), made.get("b", 8)) == (None, "second", None)
