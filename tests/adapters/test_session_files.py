"""Session records are complete or absent, and a damaged one does no harm."""

import resource
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capd.adapters.session_files import SessionFiles
from capd.core.sessions.session_record import (
    RETENTION,
    SavedActivation,
    SavedServer,
    SavedTool,
    SessionRecord,
    token_digest,
)
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolName,
)

KEY = SessionKey("claude:1/../../x")


def record(key: SessionKey = KEY, age: float = 0.0, *, is_empty: bool = False) -> SessionRecord:
    spec = CapabilitySpec(CapabilityId(TapName("t"), CapabilityName("c")), "default")
    activations = [] if is_empty else [SavedActivation(spec, [], [], 1.0)]
    return SessionRecord(key, token_digest("x"), time.time() - age, activations, [], [], [])


@pytest.fixture
def files(tmp_path: Path) -> SessionFiles:
    return SessionFiles(tmp_path / "sessions")


async def test_what_was_saved_is_found_by_its_key_alone(
    files: SessionFiles, tmp_path: Path
) -> None:
    saved = record()
    await files.save(saved)

    found = [await files.load(KEY), await files.load(SessionKey("other"))]

    assert found == [saved, None]
    [path] = (tmp_path / "sessions").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_session_with_nothing_on_leaves_no_file(
    files: SessionFiles, tmp_path: Path
) -> None:
    await files.save(record())

    await files.save(record(is_empty=True))

    assert list((tmp_path / "sessions").iterdir()) == []


@pytest.mark.parametrize(
    "own",
    [
        {"tools": [SavedTool(ServerIdentity("i"), ToolName("t"), 1.0)]},
        {"is_routed": False},
    ],
)
async def test_a_session_that_has_no_capability_on_is_kept_for_what_else_it_has(
    files: SessionFiles, own: dict[str, Any]
) -> None:
    saved = msgspec.structs.replace(record(is_empty=True), **own)

    await files.save(saved)

    assert await files.load(KEY) == saved


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"\x81\xa1a\x01", b"[" * 1000])
async def test_a_damaged_record_is_as_good_as_none(
    files: SessionFiles, tmp_path: Path, damage: bytes
) -> None:
    await files.save(record())
    [path] = (tmp_path / "sessions").iterdir()
    path.write_bytes(damage)

    found = await files.load(KEY)

    assert found is None
    await files.save(record())
    assert await files.load(KEY) is not None


async def test_a_record_with_one_bit_changed_is_never_taken_for_another(
    files: SessionFiles, tmp_path: Path
) -> None:
    """It names the commands of servers: a changed one would be started."""
    server = ServerSpec(ServerName("git"), "stdio", TapName("t"), "uvx", ("mcp-server-git",))
    servers = [SavedServer(server, ServerIdentity("i"), [])]
    saved = msgspec.structs.replace(record(), servers=servers)
    await files.save(saved)
    [path] = (tmp_path / "sessions").iterdir()
    whole = path.read_bytes()
    others = []
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])

        found = await files.load(KEY)

        if found not in (None, saved):
            others.append((at, found))
    assert others == []


async def test_a_record_of_an_earlier_capd_is_read(files: SessionFiles, tmp_path: Path) -> None:
    saved = record()
    await files.save(saved)
    [path] = (tmp_path / "sessions").iterdir()
    fields = msgspec.to_builtins(saved)
    fields.pop("digest", None)
    path.write_bytes(msgspec.msgpack.encode(fields))

    assert await files.load(KEY) == saved


async def test_the_sweep_removes_what_is_old_or_damaged_and_nothing_else(
    files: SessionFiles, tmp_path: Path
) -> None:
    await files.save(record())
    await files.save(record(SessionKey("old"), RETENTION + 1))
    (tmp_path / "sessions" / "broken.session").write_bytes(b"?")
    (tmp_path / "sessions" / "half.partial").write_bytes(b"?")

    await files.sweep()

    assert len(list((tmp_path / "sessions").iterdir())) == 1
    assert await files.load(KEY) is not None


async def test_the_sweep_leaves_what_it_cannot_read(closed: Path) -> None:
    folder = closed.parent / "sessions"
    files = SessionFiles(folder)
    await files.save(record())
    (path,) = folder.iterdir()
    path.chmod(0)

    await files.sweep()

    assert path.exists()


async def test_a_record_is_not_taken_for_missing_while_no_descriptor_is_free(
    files: SessionFiles,
) -> None:
    saved = record()
    await files.save(saved)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            await files.load(KEY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    assert await files.load(KEY) == saved


async def test_a_record_past_its_retention_is_not_found(files: SessionFiles) -> None:
    await files.save(record(age=RETENTION + 1))

    found = await files.load(KEY)

    assert found is None


async def test_a_folder_that_cannot_be_written_costs_no_more_than_the_record(
    tmp_path: Path,
) -> None:
    (tmp_path / "sessions").write_text("a file where the folder should be")
    files = SessionFiles(tmp_path / "sessions")

    await files.save(record())

    assert await files.load(KEY) is None


def test_records_are_readable_by_a_later_version() -> None:
    data = msgspec.msgpack.encode({**msgspec.to_builtins(record()), "later": 1})

    assert msgspec.msgpack.decode(data, type=SessionRecord).key == KEY
