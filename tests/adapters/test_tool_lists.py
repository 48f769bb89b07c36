"""Tool lists are saved between daemon runs."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from capd.adapters import tool_lists
from capd.adapters.tool_lists import ToolList, ToolLists
from capd_protos.types import ServerIdentity, ServerName, ToolDefinition, ToolName

IDENTITY = ServerIdentity("0123456789abcdef")
OTHER = ServerIdentity("fedcba9876543210")
TOOLS = [ToolDefinition(ToolName("echo"), b'{"name":"echo", "x":  1}')]


async def kept(folder: Path) -> Path:
    await ToolLists(folder).keep(IDENTITY, ServerName("alpha"), "1.2", TOOLS)
    return folder / f"{IDENTITY}.tools"


async def test_a_list_is_found_again_as_the_server_wrote_it(tmp_path: Path) -> None:
    await kept(tmp_path / "lists")

    got = await ToolLists(tmp_path / "lists").load(IDENTITY)

    assert got is not None
    assert got == ToolList(IDENTITY, ServerName("alpha"), "1.2", got.listed_at, TOOLS)


async def test_the_later_list_of_a_server_wins_and_leaves_one_private_file(tmp_path: Path) -> None:
    lists = ToolLists(tmp_path / "lists")
    path = await kept(tmp_path / "lists")

    await lists.keep(IDENTITY, ServerName("alpha"), "1.3", [])

    got = await lists.load_all([IDENTITY, OTHER])
    assert [(listed.server_version, listed.tools) for listed in got.values()] == [("1.3", [])]
    assert [(each, each.stat().st_mode & 0o777) for each in path.parent.iterdir()] == [
        (path, 0o600)
    ]
    assert path.parent.stat().st_mode & 0o777 == 0o700


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def another_type(path: Path) -> None:
    path.write_bytes(b"\x01")


def writable_by_all(path: Path) -> None:
    path.chmod(0o666)


def linked(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("spoil", [cut, emptied, another_type, writable_by_all, linked, fifo])
async def test_a_file_that_is_not_as_it_was_written_is_none(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(await kept(tmp_path))

    got = await ToolLists(tmp_path).load(IDENTITY)

    assert got is None


async def test_a_file_of_another_server_is_none(tmp_path: Path) -> None:
    (await kept(tmp_path)).rename(tmp_path / f"{OTHER}.tools")

    got = await ToolLists(tmp_path).load(OTHER)

    assert got is None


async def test_a_list_that_is_too_large_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept(tmp_path)
    monkeypatch.setattr(tool_lists, "MOST_BYTES", 200)

    await ToolLists(tmp_path).keep(
        IDENTITY, ServerName("alpha"), "2", [ToolDefinition(ToolName("x"), b"y" * 300)]
    )

    got = await ToolLists(tmp_path).load(IDENTITY)
    assert got is not None
    assert got.server_version == "1.2"


async def test_a_folder_that_cannot_be_written_costs_no_server(tmp_path: Path) -> None:
    (tmp_path / "lists").write_text("a file")

    await kept(tmp_path / "lists")

    assert await ToolLists(tmp_path / "lists").load(IDENTITY) is None


async def test_what_is_no_identity_becomes_no_path(tmp_path: Path) -> None:
    await ToolLists(tmp_path / "a").keep(ServerIdentity("../../x"), ServerName("alpha"), "", [])

    assert list(tmp_path.iterdir()) == []


async def test_the_oldest_lists_leave_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.utime(await kept(tmp_path), (1, 1))
    monkeypatch.setattr(tool_lists, "MOST_FILES", 1)

    await ToolLists(tmp_path).keep(OTHER, ServerName("beta"), "", [])

    assert [path.name for path in tmp_path.iterdir()] == [f"{OTHER}.tools"]
