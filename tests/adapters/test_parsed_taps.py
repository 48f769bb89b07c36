"""Parsed taps are cached across restarts until their files change."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from capd.adapters import parsed_taps
from capd.adapters.parsed_taps import ParsedTaps
from capd.adapters.parsing.jobs import DIRECT, Job, T
from capd.adapters.tap_files import TapPlace, read_tap
from capd.adapters.unchanged_files import mark_of_folder
from capd_protos.types import TapName
from whole_daemon import wait_for


class Counting:
    """Reads, and counts how often."""

    is_spent = False

    def __init__(self) -> None:
        self.jobs = 0

    def read(self, job: Job[T]) -> T:
        self.jobs += 1
        return DIRECT.read(job)


def written(folder: Path, triggers: str = '["say that again"]') -> TapPlace:
    """Write a tap of one capability, with files too old to be changing still."""
    capability = folder / "tap/capabilities/echo"
    capability.mkdir(parents=True, exist_ok=True)
    (capability / "config.toml").write_text(f"triggers = {triggers}\n")
    (capability / "default.toml").write_text('[[mcp.servers]]\nname = "e"\ncommand = "e"\n')
    assert wait_for(partial(mark_of_folder, str(capability), ".toml"))
    return TapPlace(TapName("mine"), folder / "tap")


def read_anew(place: TapPlace, file: Path) -> int:
    """Return how many texts another daemon reads."""
    known, reader = ParsedTaps(file), Counting()
    known.restore()
    read_tap(place, reader, known)
    known.keep()
    return reader.jobs


def test_another_daemon_reads_nothing_that_has_not_changed(tmp_path: Path) -> None:
    place, file = written(tmp_path), tmp_path / "taps.bin"
    known = ParsedTaps(file)
    before = read_tap(place, DIRECT, known)
    known.keep()

    again = ParsedTaps(file)
    again.restore()

    reader = Counting()
    assert read_tap(place, reader, again) == before
    assert reader.jobs == 0


def test_another_daemon_reads_what_has_changed_since(tmp_path: Path) -> None:
    place, file = written(tmp_path), tmp_path / "taps.bin"
    assert read_anew(place, file) == 1
    written(tmp_path, '["repeat my words"]')

    jobs = read_anew(place, file)

    assert jobs == 1
    assert read_anew(place, file) == 0


def damaged(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(damaged, id="a damaged file"),
        pytest.param(lambda file: file.write_bytes(b""), id="an empty file"),
        pytest.param(lambda file: file.write_bytes(b"something else"), id="another file"),
        pytest.param(lambda file: file.chmod(0o666), id="one that others can write"),
        pytest.param(lambda file: file.unlink(), id="none"),
    ],
)
def test_without_a_usable_file_everything_is_read(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    place, file = written(tmp_path), tmp_path / "taps.bin"
    read_anew(place, file)
    spoil(file)

    jobs = read_anew(place, file)

    assert jobs == 1


def test_what_another_version_has_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, file = written(tmp_path), tmp_path / "taps.bin"
    read_anew(place, file)
    monkeypatch.setattr(parsed_taps, "_code_mark", lambda: b"another")

    jobs = read_anew(place, file)

    assert jobs == 1
