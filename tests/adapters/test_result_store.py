"""The store of whole results is private, bounded and checked, and expires on time."""

import hashlib
import json
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters import result_store
from capd.adapters.result_store import BLOCK_BYTES, NotKeptError, ResultStore
from capd.adapters.spool import Spool
from capd.core.results.handles import RETENTION
from capd.core.results.large_results import LargeResult
from capd_protos.types import SessionKey
from support.examples import examples

ONE, TWO = SessionKey("one"), SessionKey("two")
MIB = 1 << 20


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> ResultStore:
    return ResultStore(tmp_path / "results", most_bytes=4 * MIB, clock=clock)


async def read(store: ResultStore, handle: str, start: int = 0, size: int = 1 << 40) -> bytes:
    return await store.read(await store.record(handle), start, size)


async def refusal(store: ResultStore, handle: str) -> str:
    with pytest.raises(NotKeptError) as caught:
        await read(store, handle)
    return str(caught.value)


async def spooled(tmp_path: Path, before: bytes, data: bytes, after: bytes) -> LargeResult:
    file = Spool(tmp_path).of_server().file()
    file.add(before + data + after)
    return LargeResult(file, len(before), len(before) + len(data), data[:10], data[-10:])


async def test_what_is_kept_is_read_back_from_any_place(store: ResultStore) -> None:
    data = random.Random(1).randbytes(2 * BLOCK_BYTES + 4321)

    handle = await store.keep(data, ONE, "t")

    for start, size in ((0, 10), (BLOCK_BYTES - 3, 7), (2 * BLOCK_BYTES, 5), (len(data) - 4, 99)):
        assert await read(store, handle, start, size) == data[start : start + size]
    assert await read(store, handle) == data


@settings(max_examples=examples(25), deadline=None)
@given(st.binary(max_size=3000), st.lists(st.integers(1, 700), min_size=1, max_size=9))
def test_pages_put_together_are_the_bytes_that_were_kept(data: bytes, sizes: list[int]) -> None:
    async def joined(folder: Path) -> bytes:
        store = ResultStore(folder)
        handle = await store.keep(data, ONE, "t")
        pages: list[bytes] = []
        while (at := sum(map(len, pages))) < len(data):
            pages.append(await read(store, handle, at, sizes[len(pages) % len(sizes)]))
        return b"".join(pages)

    with tempfile.TemporaryDirectory() as folder:
        assert trio.run(joined, Path(folder)) == data


async def test_a_large_result_is_adopted_by_name_and_read_without_what_is_around_it(
    tmp_path: Path, store: ResultStore
) -> None:
    data = b'{"content":[' + b"7," * MIB + b"7]}"
    result = await spooled(tmp_path, b'{"id":1,"result":', data, b"}")

    handle = await store.keep(result, ONE, "t")

    (path,) = (tmp_path / "results").glob("*.result")
    assert path.stem == hashlib.sha256(data).hexdigest()
    assert path.stat().st_size == len(data) + 18
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_nlink == 1
    del result
    assert await read(store, handle) == data
    # The same bytes in another line, and as bytes.
    again = await store.keep(await spooled(tmp_path, b"xx", data, b""), TWO, "t")
    assert await read(store, handle) == await read(store, again) == data


async def test_where_files_cannot_be_named_a_large_result_is_copied(
    tmp_path: Path, store: ResultStore
) -> None:
    class ServerLease:
        async def read(self, start: int, size_bytes: int) -> bytes:
            await trio.lowlevel.checkpoint()
            return data[start : start + size_bytes]

    data = b"[" + b"1," * 500_000 + b"1]"

    handle = await store.keep(LargeResult(ServerLease(), 0, len(data), b"", b""), ONE, "t")

    assert await read(store, handle) == data


async def test_one_result_has_one_file_and_a_handle_for_each_session(
    tmp_path: Path, store: ResultStore
) -> None:
    handles = [await store.keep(b"same", session, "t") for session in (ONE, TWO, ONE)]

    assert handles[0] == handles[2] != handles[1]
    assert len(list((tmp_path / "results").glob("*.result"))) == 1
    assert [(await store.record(each)).session for each in handles[:2]] == [ONE, TWO]


async def test_another_daemon_finds_what_was_kept(tmp_path: Path, clock: Clock) -> None:
    folder = tmp_path / "results"
    handle = await ResultStore(folder, clock=clock).keep(b"kept", ONE, "t")
    folder.joinpath("broken.handle").write_bytes(b"\xc1")

    later = ResultStore(folder, clock=clock)

    assert await read(later, handle) == b"kept"
    assert await later.keep(b"kept", ONE, "t") == handle
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "loop"])
async def test_what_is_planted_in_the_folder_holds_nobody_up(
    tmp_path: Path, clock: Clock, kind: str
) -> None:
    def plant(path: Path) -> None:
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero" if kind == "device" else path)

    folder = tmp_path / "results"
    kept = await ResultStore(folder, clock=clock).keep(b"kept", ONE, "t")
    lost = await ResultStore(folder, clock=clock).keep(b"lost", ONE, "t")
    plant(folder / f"r{'a' * 26}.handle")
    plant(folder / f"{hashlib.sha256(b'lost').hexdigest()}.result")

    later = ResultStore(folder, clock=clock)

    assert await read(later, kept) == b"kept"
    with pytest.raises(OSError):  # noqa: PT011 - whatever the system calls it
        await read(later, lost)
    if kind != "folder":
        assert await later.keep(b"lost", ONE, "t") == lost
        assert await read(later, lost) == b"lost"
        plant(folder / "secret")
        assert await ResultStore(folder, clock=clock).keep(b"other", ONE, "t")


async def test_every_flipped_bit_and_every_cut_is_told(tmp_path: Path, store: ResultStore) -> None:
    data = json.dumps(["x" * 300] * 9000).encode()
    handle = await store.keep(data, ONE, "git__log")
    (path,) = (tmp_path / "results").glob("*.result")

    for damaged in (b"y" + data[1:], data[:-1] + b"}", data[:-1], b""):
        path.write_bytes(damaged)
        at = next((i for i, b in enumerate(damaged) if b != data[i]), len(damaged) - 1)

        said = await refusal(store, handle)

        assert said.startswith("The stored copy of this result is damaged")
        assert said.endswith("call git__log again.")
        assert at < len(data)
    assert await store.keep(data, ONE, "git__log") == handle
    assert await read(store, handle) == data


async def test_a_handle_lasts_a_day_and_then_says_that_it_has_expired(
    tmp_path: Path, store: ResultStore, clock: Clock
) -> None:
    handle = await store.keep(b"old", ONE, "t")
    clock.now += RETENTION - 1
    before = await read(store, handle)
    clock.now += 1

    said = await refusal(store, handle)
    await store.sweep()

    assert before == b"old"
    assert said == "This handle has expired: results are kept for 24 hours. Call t again."
    assert list((tmp_path / "results").glob("*.result")) == []
    assert await refusal(store, handle) == said
    clock.now += RETENTION
    await store.sweep()
    assert list((tmp_path / "results").glob("*.handle")) == []


async def test_the_least_recently_used_makes_room_and_its_handle_says_so(
    store: ResultStore, clock: Clock
) -> None:
    handles = []
    for each in (b"a", b"b", b"c"):
        clock.now += 1
        handles.append(await store.keep(each * MIB, ONE, "t"))
    clock.now += 1
    await read(store, handles[0], 0, 1)
    clock.now += 1

    handles.append(await store.keep(b"d" * 2 * MIB, ONE, "t"))

    said = await refusal(store, handles[1])
    assert said.startswith("This result is no longer kept: it had to make room")
    assert [len(await read(store, handles[n])) for n in (0, 2, 3)] == [MIB, MIB, 2 * MIB]
    with pytest.raises(NotKeptError, match="more than the store may have"):
        await store.keep(b"e" * 5 * MIB, ONE, "t")


async def test_what_cannot_be_written_is_an_error_and_leaves_nothing(
    tmp_path: Path, clock: Clock
) -> None:
    in_the_way = tmp_path / "results"
    in_the_way.write_text("")
    store = ResultStore(in_the_way, clock=clock)

    with pytest.raises(OSError, match="results"):
        await store.keep(b"lost", ONE, "t")

    in_the_way.unlink()
    handle = await store.keep(b"found", ONE, "t")
    assert await read(store, handle) == b"found"


@pytest.mark.parametrize("handle", ["", "r", "../secret", "r" + "a" * 26, "R" + "a" * 26, "é" * 27])
async def test_what_is_no_handle_leads_to_no_file(store: ResultStore, handle: str) -> None:
    await store.keep(b"x", ONE, "t")

    assert (await refusal(store, handle)).startswith("No result is kept under this handle")


async def test_what_keeping_one_costs_does_not_grow_with_what_is_kept(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    real_stat, real_scandir = os.stat, os.scandir

    def stat(*args: Any, **more: Any) -> os.stat_result:
        nonlocal looked
        looked += 1
        return real_stat(*args, **more)

    def scandir(*args: Any) -> Any:
        nonlocal looked
        looked += 1
        return real_scandir(*args)

    monkeypatch.setattr(os, "stat", stat)
    monkeypatch.setattr(os, "scandir", scandir)
    costs = []
    for number in range(150):
        looked = 0
        await store.keep(f"result {number}".encode(), ONE, "t")
        costs.append(looked)

    assert costs[140:] == costs[5:15]


async def test_handles_are_bounded_by_number_too(
    tmp_path: Path, store: ResultStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_store, "MOST_HANDLES", 10)

    handles = [await store.keep(f"result {n}".encode(), ONE, "t") for n in range(30)]

    assert len(list((tmp_path / "results").glob("*.handle"))) <= 11
    assert await read(store, handles[-1]) == b"result 29"
    assert "No result is kept" in await refusal(store, handles[0])


async def test_a_result_that_two_sessions_got_stays_until_neither_has_it(
    tmp_path: Path, store: ResultStore, clock: Clock
) -> None:
    first = await store.keep(b"same", ONE, "t")
    clock.now += RETENTION / 2
    second = await store.keep(b"same", TWO, "t")
    clock.now += RETENTION / 2

    await store.sweep()

    assert "expired" in await refusal(store, first)
    assert await read(store, second) == b"same"
    clock.now += RETENTION / 2
    await store.sweep()
    assert list((tmp_path / "results").glob("*.result")) == []


async def test_a_record_that_was_changed_to_another_session_is_not_a_record(
    tmp_path: Path, store: ResultStore
) -> None:
    handle = await store.keep(b"secret of one", ONE, "t")
    path = tmp_path / "results" / f"{handle}.handle"
    record = await store.record(handle)
    changed = msgspec.structs.replace(record, session=TWO)
    path.write_bytes(msgspec.msgpack.encode(changed))

    assert "No result is kept" in await refusal(store, handle)
    assert "No result is kept" in await refusal(ResultStore(path.parent), handle)


async def test_a_record_that_was_removed_is_missed_and_written_with_the_next_result(
    tmp_path: Path, store: ResultStore
) -> None:
    handle = await store.keep(b"whole", ONE, "t")
    (tmp_path / "results" / f"{handle}.handle").unlink()

    assert "No result is kept" in await refusal(store, handle)
    assert await store.keep(b"whole", ONE, "t") == handle
    assert await read(store, handle) == b"whole"


async def test_a_pipe_in_place_of_a_record_is_replaced_with_the_next_result(
    tmp_path: Path, store: ResultStore
) -> None:
    handle = await store.keep(b"whole", ONE, "t")
    path = tmp_path / "results" / f"{handle}.handle"
    path.unlink()
    os.mkfifo(path)

    with trio.fail_after(10):
        assert await store.keep(b"whole", ONE, "t") == handle
    assert await read(store, handle) == b"whole"


async def test_handles_that_have_expired_make_room_first(
    store: ResultStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_store, "MOST_HANDLES", 3)
    expired = [await store.keep(f"old {n}".encode(), ONE, "t") for n in range(2)]
    clock.now += RETENTION

    live = [await store.keep(f"new {n}".encode(), ONE, "t") for n in range(3)]
    await store.sweep()

    assert [await read(store, each) for each in live] == [b"new 0", b"new 1", b"new 2"]
    assert "No result is kept" in await refusal(store, expired[0])
