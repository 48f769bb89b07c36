"""Cached files of projects and servers that no longer exist."""

import os
from pathlib import Path

import pytest

from capd.adapters.leftover_files import LeftoverFiles
from capd.adapters.trust.trust_file import TrustFile
from capd.core.records.leftovers import Leftover
from capd.core.trust.startable import Agreement


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache with one file of a project, one server's folder, and other files."""
    cache = tmp_path / "cache"
    (cache / "sandbox" / "0123456789abcdef" / "tmp").mkdir(parents=True)
    (cache / "sandbox" / "0123456789abcdef" / "out").symlink_to(tmp_path)
    (cache / "sandbox" / "link").symlink_to(tmp_path)
    (cache / "vectors.0123456789ab.bin").write_bytes(b"x")
    (cache / "linked.bin").symlink_to(cache / "vectors.0123456789ab.bin")
    for path in (cache / "vectors.0123456789ab.bin", cache / "sandbox" / "0123456789abcdef"):
        os.utime(path, (1000, 1000))
    return cache


@pytest.fixture
def trust(tmp_path: Path) -> TrustFile:
    return TrustFile(tmp_path / "trust.json")


def test_files_and_folders_are_found_with_the_time_of_their_last_use_and_links_are_not(
    cache: Path, trust: TrustFile
) -> None:
    found = LeftoverFiles(cache, trust).found()

    assert found == [
        Leftover("vectors.0123456789ab.bin", 1000.0),
        Leftover("0123456789abcdef", 1000.0, is_servers=True),
    ]


def test_what_goes_is_removed_as_it_stands_and_nothing_that_it_points_to(
    cache: Path, trust: TrustFile
) -> None:
    files = LeftoverFiles(cache, trust)

    files.remove([*files.found(), Leftover("never there", 0.0)])

    assert sorted(path.name for path in cache.rglob("*")) == ["link", "linked.bin", "sandbox"]
    assert cache.parent.is_dir()


def test_what_was_used_since_it_was_looked_at_stays(cache: Path, trust: TrustFile) -> None:
    files = LeftoverFiles(cache, trust)
    found = files.found()
    for path in (cache / "vectors.0123456789ab.bin", cache / "sandbox" / "0123456789abcdef"):
        os.utime(path)

    files.remove(found)

    assert len(files.found()) == 2


def test_projects_are_those_that_are_agreed_to_and_there(tmp_path: Path, trust: TrustFile) -> None:
    (tmp_path / "here").mkdir()
    agreed = {"d": Agreement("git", "d", {})}
    trust.write({str(tmp_path / "here"): agreed, str(tmp_path / "gone"): agreed})

    there = LeftoverFiles(tmp_path, trust).projects()

    assert there == [str(tmp_path / "here")]


def test_where_it_cannot_be_told_what_is_agreed_to_that_is_an_error(
    tmp_path: Path, trust: TrustFile
) -> None:
    trust.path.write_text("damaged")
    trust.path.chmod(0o600)

    with pytest.raises(OSError, match="damaged"):
        LeftoverFiles(tmp_path, trust).projects()
