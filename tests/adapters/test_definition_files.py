"""Trusted definitions survive a restart; a damaged file is never trusted."""

import os
import random
from pathlib import Path

import pytest

from capd.adapters.definition_files import DefinitionFiles, LoadedDefinitions
from capd.core.definitions.baseline import Baseline, ToolChange, TrustedTool
from capd_protos.types import ServerIdentity, ServerName, ToolName

GIT = ServerIdentity("9c1e9c1e9c1e9c1e")
BASELINE = Baseline(
    GIT,
    ServerName("git"),
    "pinned",
    {ToolName("log"): TrustedTool(("a" * 64,), b'{"name":"log"}', ("b" * 64,))},
    {ToolName("log"): ToolChange("changed", "c" * 64, b"{}", 2.5, is_rejected=True)},
)
LOST = Baseline(GIT, ServerName(""), is_lost=True)


@pytest.fixture
def files(tmp_path: Path) -> DefinitionFiles:
    return DefinitionFiles(tmp_path / "definitions")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "definitions" / f"{GIT}.definitions"


async def test_what_is_saved_is_found_by_the_next_daemon(
    files: DefinitionFiles, path: Path
) -> None:
    problem = await files.save(BASELINE)

    again = DefinitionFiles(path.parent)
    assert problem == ""
    assert await again.load(GIT) == LoadedDefinitions(BASELINE)
    assert await again.load_all() == [LoadedDefinitions(BASELINE)]
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


async def test_a_server_that_was_never_met_has_no_file(files: DefinitionFiles) -> None:
    got = await files.load(GIT)

    assert got == LoadedDefinitions(None)
    assert await files.load_all() == []


async def test_every_damage_is_set_aside_and_said_and_remembered(
    files: DefinitionFiles, path: Path
) -> None:
    chance = random.Random(7)
    await files.save(BASELINE)
    good = path.read_bytes()
    for _ in range(500):
        bad = bytearray(good)
        for _ in range(chance.choice([1, 3, 40])):
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            bad = bad[: chance.randrange(len(bad))]
        path.write_bytes(bad)

        got = await files.load(GIT)

        assert (got.baseline, "is set aside" in got.problem) == (LOST, True), bytes(bad)
        assert await files.load(GIT) == LoadedDefinitions(LOST)
        assert path.with_suffix(".damaged").read_bytes() == bad


async def test_a_file_that_others_can_write_is_not_trusted(
    files: DefinitionFiles, path: Path
) -> None:
    await files.save(BASELINE)
    path.chmod(0o666)

    got = await files.load(GIT)

    assert got.baseline == LOST
    assert "somebody else can write it" in got.problem


async def test_another_servers_file_is_not_trusted(files: DefinitionFiles, path: Path) -> None:
    await files.save(BASELINE)
    other = ServerIdentity("0" * 16)
    path.rename(path.with_name(f"{other}.definitions"))

    got = await files.load(other)

    assert (got.baseline or BASELINE).is_lost


async def test_what_cannot_be_read_stays_where_it_is(files: DefinitionFiles, path: Path) -> None:
    await files.save(BASELINE)
    real = path.rename(path.with_suffix(".real"))
    path.symlink_to(real)

    got = await files.load(GIT)

    assert (got.baseline, "cannot be read" in got.problem) == (None, True)
    assert path.is_symlink()


async def test_a_full_disk_is_said_and_leaves_what_was_there(
    files: DefinitionFiles, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await files.save(Baseline(GIT, ServerName("git")))

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    problem = await files.save(BASELINE)

    assert problem == "No space left on device"
    assert await files.load(GIT) == LoadedDefinitions(Baseline(GIT, ServerName("git")))
