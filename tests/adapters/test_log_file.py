"""The daemon's own log file has a limited size."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.log import Sink
from capd.adapters.log_file import GENERATIONS, LogFile

BOUND = 100
LINE = "x" * 39 + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "capd.log"


@pytest.fixture
def fd(path: Path) -> Iterator[int]:
    """Open a descriptor of the log, like the program that starts a daemon."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    yield opened
    os.close(opened)


def sizes(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in folder.iterdir()}


def test_a_full_log_is_moved_aside_and_the_oldest_goes(path: Path, fd: int) -> None:
    sink = Sink(fd, LogFile(path, fd, BOUND))

    for _ in range(3 * (GENERATIONS + 5)):
        sink.write(LINE)

    full = {f"capd.log.{number}": 120 for number in range(1, GENERATIONS + 1)}
    assert sizes(path.parent) == {**full, "capd.log": 120}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_generations_hold_what_was_written_last_without_a_gap(path: Path, fd: int) -> None:
    sink = Sink(fd, LogFile(path, fd, BOUND))

    for number in range(40):
        sink.write(f"{number:039d}\n")

    files = [path.with_name(f"capd.log.{number}") for number in range(GENERATIONS, 0, -1)]
    lines = "".join(each.read_text() for each in [*files, path]).split()
    assert [int(each) for each in lines] == list(range(40 - len(lines), 40))
    assert len(lines) == 3 * GENERATIONS + 1


@pytest.mark.parametrize("how", ["another file", "moved by somebody", "a pipe"])
def test_what_is_not_the_log_of_capd_is_left_to_whoever_opened_it(
    tmp_path: Path, path: Path, fd: int, how: str
) -> None:
    reader, writer = os.pipe()
    match how:
        case "another file":
            log = LogFile(tmp_path / "other.log", fd, BOUND)
        case "moved by somebody":
            path.rename(tmp_path / "mine")
            log = LogFile(path, fd, BOUND)
        case _:
            log = LogFile(path, writer, BOUND)
    before = sorted(sizes(tmp_path))
    os.write(fd, LINE.encode() * 10)

    log.keep_bounded()

    assert sorted(sizes(tmp_path)) == before
    os.close(reader)
    os.close(writer)


def test_a_log_that_cannot_be_moved_is_written_on(path: Path, fd: int) -> None:
    for name in ("capd.log.2", "capd.log.3"):
        (path.with_name(name) / "in the way").mkdir(parents=True)
    sink = Sink(fd, LogFile(path, fd, BOUND))

    for _ in range(5):
        sink.write(LINE)

    assert path.stat().st_size == 5 * len(LINE)
