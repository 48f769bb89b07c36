"""Saved agreements: a damaged or foreign file makes nothing trusted."""

import json
import os
import random
import resource
from pathlib import Path

import pytest

from capd.adapters.trust.trust_file import NotReadError, TrustFile
from capd.core.trust.startable import Agreement

KEPT = {"/src/app": {"aa": Agreement("db", "aa", {"command line": "bb"})}}


@pytest.fixture
def file(tmp_path: Path) -> TrustFile:
    made = TrustFile(tmp_path / "trust.json")
    made.write(KEPT)
    return made


def test_what_is_written_is_read_and_is_for_nobody_elses_eyes(file: TrustFile) -> None:
    read = file.read()

    assert (read.projects, read.problem) == (KEPT, "")
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert list(file.path.parent.iterdir()) == [file.path]


def test_without_a_file_nothing_is_trusted_and_nothing_is_wrong(tmp_path: Path) -> None:
    read = TrustFile(tmp_path / "trust.json").read()

    assert (read.projects, read.problem) == ({}, "")


def test_a_file_that_others_have_access_to_is_not_believed(file: TrustFile) -> None:
    file.path.chmod(0o640)

    read = file.read()

    assert (read.projects, "its mode is 0640" in read.problem) == ({}, True)


def test_a_link_is_not_believed(file: TrustFile) -> None:
    real = file.path.rename(file.path.with_name("elsewhere"))
    file.path.symlink_to(real)

    read = file.read()

    assert (read.projects, "it is a link" in read.problem) == ({}, True)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_believed(file: TrustFile, make: object) -> None:
    file.path.unlink()
    assert callable(make)
    make(file.path)

    assert file.read().projects == {}


def test_whatever_is_damaged_trusts_nothing_that_was_not_agreed_to(file: TrustFile) -> None:
    good = file.path.read_bytes()
    source = random.Random(7)

    for _ in range(500):
        data = bytearray(good)
        for _ in range(source.randint(1, 4)):
            at = source.randrange(len(data))
            what = source.randrange(3)
            if what == 0:
                data[at] = source.randrange(256)
            elif what == 1:
                del data[at:]
                data += b"}"
            else:
                data[at:at] = source.randbytes(3)
        file.path.write_bytes(bytes(data))

        read = file.read()

        assert read.projects in ({}, KEPT)
        assert read.projects == KEPT or read.problem


def test_a_forged_entry_without_its_checksum_is_not_believed(file: TrustFile) -> None:
    document = json.loads(file.path.read_bytes())
    document["projects"]["/evil"] = document["projects"]["/src/app"]
    file.path.write_text(json.dumps(document))

    assert file.read().projects == {}


def test_a_damaged_file_is_set_aside_by_the_next_agreement(file: TrustFile) -> None:
    file.path.write_bytes(b"{")

    file.write(KEPT)

    aside = [p for p in file.path.parent.iterdir() if "damaged" in p.name]
    assert file.read().projects == KEPT
    assert [p.read_bytes() for p in aside] == [b"{"]


def test_a_file_that_cannot_be_read_at_the_moment_is_left_as_it_is(file: TrustFile) -> None:
    good = file.path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        read = file.read()
        with pytest.raises(NotReadError, match=r"cannot be read: Too many open files"):
            file.write({})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert (read.projects, "Too many open files" in read.problem) == ({}, True)
    assert [each.read_bytes() for each in file.path.parent.iterdir()] == [good]
