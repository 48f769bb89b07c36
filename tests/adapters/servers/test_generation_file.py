"""The file of servers' generations is private, written atomically, and ignored if broken."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from capd.adapters.servers.generation_file import GenerationFile
from capd_protos.types import ServerIdentity

GENERATIONS = {ServerIdentity("0123456789abcdef"): "both", ServerIdentity("f" * 16): "stateless"}


async def test_what_is_saved_is_loaded_and_private(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "eras.json"
    file = GenerationFile(path)
    await file.save({})
    await file.save(GENERATIONS)

    got = await GenerationFile(path).load()

    assert got == GENERATIONS
    assert (path.stat().st_mode & 0o777, list(path.parent.iterdir())) == (0o600, [path])


async def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    with capture_logs() as logs:
        got = await GenerationFile(tmp_path / "eras.json").load()

    assert (got, logs) == ({}, [])


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"a":1}', b"\xff\xfe"])
async def test_a_file_that_is_broken_is_empty_and_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "eras.json"
    path.write_bytes(content)

    with capture_logs() as logs:
        got = await GenerationFile(path).load()

    assert (got, [each["event"] for each in logs]) == ({}, ["state_unreadable"])


async def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "eras.json"
    tmp_path.joinpath("elsewhere").write_bytes(b"{}")
    path.symlink_to(tmp_path / "elsewhere")

    with capture_logs() as logs:
        got = await GenerationFile(path).load()

    assert (got, [each["event"] for each in logs]) == ({}, ["state_unreadable"])


async def test_a_disk_that_takes_nothing_is_said(tmp_path: Path) -> None:
    tmp_path.joinpath("file").write_bytes(b"")

    with capture_logs() as logs:
        await GenerationFile(tmp_path / "file" / "eras.json").save(GENERATIONS)

    assert [each["event"] for each in logs] == ["state_not_saved"]
