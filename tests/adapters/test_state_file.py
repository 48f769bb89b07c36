"""State files are written atomically and private, and never make a start fail."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from capd.adapters.private_files import read_private, write_whole
from capd.adapters.state_file import StateFile, of_version
from capd_protos.codec import JsonCodec, MalformedError


class Document(msgspec.Struct, frozen=True):
    version: int
    values: list[int]


ONE = Document(1, [1, 2])


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "values.json"


@pytest.fixture
def file(path: Path) -> StateFile[Document]:
    return StateFile(
        path,
        JsonCodec(Document),
        most_bytes=1000,
        refuse=of_version(1),
        aside=path.with_name("values.json.bad"),
    )


async def test_what_is_saved_is_loaded_and_is_for_its_owner_alone(
    file: StateFile[Document], path: Path
) -> None:
    is_kept = await file.save(ONE)

    assert (is_kept, await file.load(), file.problem) == (True, ONE, "")
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)]
    assert (modes, names(path.parent)) == ([0o600, 0o700], ["values.json"])


async def test_without_a_file_there_is_nothing_and_nothing_is_wrong(
    file: StateFile[Document],
) -> None:
    assert (await file.load(), file.problem) == (None, "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "Input data was truncated"),
        (b'{"version":2,"values":[]}', "version 2, this daemon knows 1"),
        (b" " * 1001, "it has more than 1000 bytes"),
    ],
)
async def test_a_broken_file_is_set_aside_and_a_person_is_told(
    file: StateFile[Document], path: Path, content: bytes, reason: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)

    found = await file.load()

    assert found is None
    assert path.with_name("values.json.bad").read_bytes() == content
    assert file.problem == (
        f"{path} cannot be used: {reason}; it is set aside as values.json.bad, and what it had is"
        " collected anew"
    )


async def test_a_broken_cache_stays_until_it_is_saved_again(path: Path) -> None:
    file: StateFile[Document] = StateFile(path, JsonCodec(Document), most_bytes=1000)
    path.parent.mkdir()
    path.write_bytes(b"{")

    found = await file.load()

    assert (found, path.read_bytes()) == (None, b"{")
    assert (await file.save(ONE), await file.load()) == (True, ONE)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
async def test_what_is_no_file_is_neither_waited_for_nor_followed(
    file: StateFile[Document], path: Path, make: Callable[[Path], None]
) -> None:
    path.parent.mkdir()
    make(path)

    assert await file.load() is None


async def test_a_disk_that_takes_nothing_is_no_exception(
    file: StateFile[Document], path: Path
) -> None:
    path.parent.write_bytes(b"")

    assert await file.save(ONE) is False


async def test_what_could_not_be_read_again_does_not_replace_what_can(
    file: StateFile[Document],
) -> None:
    await file.save(ONE)

    is_kept = await file.save(Document(1, list(range(1000))))

    assert (is_kept, await file.load()) == (False, ONE)


@pytest.mark.parametrize("has_other_writers", [False, True])
def test_a_failed_write_leaves_what_was_there_and_nothing_else(
    path: Path, has_other_writers: bool
) -> None:
    write_whole(path, b"before")

    def refuse(_: Path) -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        write_whole(path, b"after", has_other_writers=has_other_writers, check=refuse)

    assert (path.read_bytes(), names(path.parent)) == (b"before", ["values.json"])


def test_what_a_crash_left_behind_is_in_nobodys_way(path: Path) -> None:
    path.parent.mkdir()
    path.with_name(".values.json.partial").symlink_to("elsewhere")

    write_whole(path, [b"one ", b"two"])

    assert (path.read_bytes(), names(path.parent)) == (b"one two", ["values.json"])


@pytest.mark.parametrize(
    ("mode", "most_bytes", "reason"),
    [(0o620, 10, "somebody else can write it"), (0o600, 3, "it is too large")],
)
def test_what_somebody_else_may_have_written_is_not_read(
    path: Path, mode: int, most_bytes: int, reason: str
) -> None:
    write_whole(path, b"text")
    path.chmod(mode)

    with pytest.raises(MalformedError, match=reason):
        read_private(path, most_bytes)
