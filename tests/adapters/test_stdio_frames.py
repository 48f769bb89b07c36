"""Frames from hostile peers, and frames to peers that stop reading."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from capd.adapters.frame_writer import (
    FrameCutError,
    FrameWriter,
    WriterFullError,
    WriterStalledError,
)
from capd.adapters.large_frames import PIECE_BYTES, LargeFrame
from capd.adapters.line_texts import recover_id
from capd.adapters.servers.processes import ProcessSpec, ServerProcess, running
from capd.adapters.spool import Spool
from capd.adapters.stdio_frames import Frame, FrameReader, FrameStalledError, Oversized
from capd.core.results.large_results import LargeResult
from support.programs import HOSTILE_SERVER

PATIENCE = 30.0


class Chunks(trio.abc.ReceiveStream):
    """A peer that sends these chunks, with pauses in between, and then closes."""

    def __init__(self, *chunks: bytes | float, is_open: bool = False) -> None:
        self._chunks = list(chunks)
        self._is_open = is_open

    async def receive_some(self, max_bytes: int | None = None) -> bytes:  # noqa: ARG002
        await trio.lowlevel.checkpoint()
        while self._chunks:
            chunk = self._chunks.pop(0)
            if isinstance(chunk, bytes):
                return chunk
            await trio.sleep(chunk)
        if self._is_open:
            await trio.sleep_forever()
        return b""

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


class Pipe(trio.abc.SendStream):
    """A peer that reads small pieces, for as long as it reads at all."""

    def __init__(self, room_bytes: int = sys.maxsize, piece_bytes: int = 8) -> None:
        self.room_bytes = room_bytes
        self.taken = b""
        self.is_broken = False
        self._piece_bytes = piece_bytes
        self._is_busy = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_busy:
            raise trio.BusyResourceError
        self._is_busy = True
        try:
            while data:
                await trio.lowlevel.checkpoint()
                if self.is_broken:
                    raise trio.BrokenResourceError
                count = min(self._piece_bytes, self.room_bytes - len(self.taken), len(data))
                if count <= 0:
                    await trio.sleep(0.1)
                self.taken += bytes(data[:count])
                data = data[count:]
        finally:
            self._is_busy = False

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def read_all(reader: FrameReader) -> list[Frame | Oversized]:
    return [each async for each in reader]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        ((b"a\nb\n",), [Frame(b"a"), Frame(b"b")]),
        ((b"a", b"b\nc", b"\n"), [Frame(b"ab"), Frame(b"c")]),
        ((b"\n\n \r\n\t\na\n",), [Frame(b"a")]),
        ((b"a\r\n",), [Frame(b"a\r")]),
        ((b"\xff\x00\n",), [Frame(b"\xff\x00")]),
        ((), []),
        ((b"12345678\n",), [Frame(b"12345678")]),
        ((b"123456789\nok\n",), [Oversized(9, b"123456789", b"123456789"), Frame(b"ok")]),
        (
            (b"1234", b"56789", b"0", b"\nok\n"),
            [Oversized(10, b"123456789", b"1234567890"), Frame(b"ok")],
        ),
        ((b"         ", b"\nok\n"), [Oversized(9, b" " * 9, b" " * 9), Frame(b"ok")]),
    ],
)
async def test_lines_become_frames_however_they_are_cut(
    chunks: tuple[bytes, ...], expected: list[Frame | Oversized]
) -> None:
    assert await read_all(FrameReader(Chunks(*chunks), cap_bytes=8)) == expected


async def test_every_cut_of_a_stream_gives_the_same_frames() -> None:
    stream = b'{"id":1}\n\n{"id":2}\r\n' + b"x" * 30 + b"\ny"
    whole = b"x" * 30
    expected = [Frame(b'{"id":1}'), Frame(b'{"id":2}\r'), Oversized(30, whole, whole)]

    for first in range(len(stream)):
        for second in range(first, len(stream)):
            pieces = [stream[:first], stream[first:second], stream[second:]]
            reader = FrameReader(Chunks(*filter(None, pieces)), cap_bytes=20)
            found = await read_all(reader)
            heads = [
                Oversized(each.size_bytes, whole, each.tail)
                if isinstance(each, Oversized)
                else each
                for each in found
            ]
            assert (heads, reader.partial) == (expected, b"y")


async def test_a_last_line_without_its_newline_is_kept_apart() -> None:
    reader = FrameReader(Chunks(b"whole\npar", b"tial"))

    assert (await read_all(reader), reader.partial) == ([Frame(b"whole")], b"partial")


@pytest.mark.parametrize("cap_bytes", [3500, 62_000, 122_000])
async def test_of_a_line_that_is_too_long_4_kib_at_each_end_are_kept(cap_bytes: int) -> None:
    chunks = (b"a" * 3000, b"b" * 60_000, b"c" * 60_000, b"d", b"\n")
    reader = FrameReader(Chunks(*chunks), cap_bytes)

    head, tail = b"a" * 3000 + b"b" * 1096, b"c" * 4095 + b"d"
    assert await read_all(reader) == [Oversized(123_001, head, tail)]


@pytest.mark.parametrize(("before", "after"), [(30, 10), (10, 30)])
async def test_a_limit_that_changes_within_a_line_loses_nothing_of_it(
    tmp_path: Path, before: int, after: int
) -> None:
    spool = Spool(tmp_path)
    reader = FrameReader(
        Chunks(b"a" * 20, 1.0, b"b" * 20 + b"\n", b"c" * 20 + b"\n"),
        before,
        spool=spool.of_server(),
    )
    found: list[bytes] = []

    async def read() -> None:
        found.extend(await spooled(reader))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        reader.allow(after)

    assert found == [b"a" * 20 + b"b" * 20, b"c" * 20]


async def taken(reader: FrameReader) -> bytes:
    """Return the next line, or the size of a discarded one."""
    line = await anext(reader)
    if isinstance(line, Frame):
        return line.data
    return b"%d" % line.size_bytes if line.kept is None else await line.kept.read(0, 1 << 30)


async def spooled(reader: FrameReader) -> list[bytes]:
    lines = []
    with suppress(StopAsyncIteration):
        while True:
            lines.append(await taken(reader))
    return lines


async def test_a_line_that_is_too_long_is_whole_in_the_spool(tmp_path: Path) -> None:
    line = bytes(range(32, 127)) * 40_000
    pieces = [line[at : at + 64_000] for at in range(0, len(line), 64_000)]
    share = Spool(tmp_path).of_server()
    reader = FrameReader(Chunks(*pieces, b"\nnext\n"), 1_000_000, spool=share)

    lines = await spooled(reader)

    assert lines == [line, b"next"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        ({"most_bytes": 150}, [b"a" * 100, b"100"]),
        ({"most_files": 1}, [b"a" * 100, b"100"]),
        ({"longest_bytes": 99}, [b"100", b"100"]),
        ({}, [b"a" * 100, b"b" * 100]),
    ],
)
async def test_what_the_spool_has_no_room_for_is_discarded(
    tmp_path: Path, room: dict[str, int], expected: list[bytes]
) -> None:
    spool = Spool(tmp_path, room.pop("most_bytes", 1000))
    reader = FrameReader(
        Chunks(b"a" * 100, b"\n", b"b" * 50, b"b" * 50, b"\n"), 10, spool=spool.of_server(**room)
    )

    first, second = await read_all(reader)

    assert isinstance(first, Oversized)
    assert isinstance(second, Oversized)
    assert [
        b"%d" % each.size_bytes if each.kept is None else await each.kept.read(0, 100)
        for each in (first, second)
    ] == expected


async def test_the_room_is_given_back_by_whoever_forgets_a_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 150)
    reader = FrameReader(Chunks(*[b"a" * 100, b"\n"] * 3), 10, spool=spool.of_server(1))

    lines = await spooled(reader)

    assert lines == [b"a" * 100] * 3
    assert spool.used_bytes == 0


async def test_a_connection_that_ends_in_a_long_line_gives_its_room_back(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    reader = FrameReader(Chunks(b"a" * 100), 10, spool=spool.of_server())
    assert await read_all(reader) == []
    used = spool.used_bytes

    del reader

    assert (used, spool.used_bytes) == (100, 0)


def test_a_process_can_end_while_something_is_spooled(tmp_path: Path) -> None:
    program = (
        # Without a thread in the cache, which would take the work and never do it.
        "import sys; from pathlib import Path; from capd.adapters.spool import Spool\n"
        "file = Spool(Path(sys.argv[1])).of_server().file(); file.add(b'x'); file._write()"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], env=environment, timeout=30, check=False
    )

    assert ended.returncode == 0


async def test_a_disk_that_takes_nothing_costs_the_line_alone(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "gone")
    chunks = [b"a" * 1_000_000] * 3
    reader = FrameReader(Chunks(*chunks, b"\nnext\n"), 10, spool=spool.of_server())

    lines = await spooled(reader)

    assert lines == [b"3000000", b"next"]
    assert spool.used_bytes == 0


async def test_a_long_line_that_goes_on_is_not_stalled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    slow = [each for _ in range(20) for each in (25.0, b"a" * (1 << 20))]
    reader = FrameReader(Chunks(b"a", *slow, 20.0, b"\n"))

    frame = await anext(reader)

    assert isinstance(frame, Frame)
    assert len(frame.data) == 20 * (1 << 20) + 1


async def test_a_line_that_began_must_end_in_time(autojump_clock: trio.testing.MockClock) -> None:
    reader = FrameReader(Chunks(100.0, b"whole\nhalf", 20.0, b"more", 20.0, b"x", is_open=True))

    assert await anext(reader) == Frame(b"whole")
    with pytest.raises(FrameStalledError, match=r"30 s .*8 bytes"):
        await anext(reader)
    assert trio.current_time() == pytest.approx(130)


async def test_a_peer_that_says_nothing_is_not_stalled(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reader = FrameReader(Chunks(b"whole\n", 10_000.0, b"next\n", 20.0, b"l", 20.0, b"ast\n"))

    assert await read_all(reader) == [Frame(b"whole"), Frame(b"next"), Frame(b"last")]


async def test_a_busy_reader_does_not_blame_the_peer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    reader = FrameReader(Chunks(b"first\nsec", b"ond\n"))

    await anext(reader)
    await trio.sleep(1000)

    assert await anext(reader) == Frame(b"second")


async def test_a_flood_of_small_lines_lets_others_run() -> None:
    frames = 0
    frames_before_other = -1

    async def other() -> None:
        nonlocal frames_before_other
        frames_before_other = frames

    async with trio.open_nursery() as nursery:
        reader = FrameReader(Chunks(b"{}\n" * 20_000))
        await anext(reader)
        nursery.start_soon(other)
        async for _ in reader:
            frames += 1

    assert 0 <= frames_before_other < 100


async def test_a_long_line_costs_linear_work() -> None:
    # Joining at every chunk would copy 16 GiB here, and not end before the deadline.
    chunk = b"x" * 1024
    reader = FrameReader(Chunks(*[chunk] * 32 * 1024, b"\n"), cap_bytes=64 * 1024 * 1024)

    with trio.fail_after(PATIENCE / 3):
        frame = await anext(reader)

    assert isinstance(frame, Frame)
    assert len(frame.data) == 32 * 1024 * 1024


async def test_cancelling_a_reader_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    reader = FrameReader(Chunks(b"ha", 5.0, b"lf\n"))

    with trio.move_on_after(1):
        await anext(reader)
    reader._stream = Chunks(b"lf\n")

    assert await anext(reader) == Frame(b"half")


def evil_spec(mode: str, n: int = 0) -> ProcessSpec:
    script = str(HOSTILE_SERVER)
    argv = (sys.executable, script, "--mode", mode, "--n", str(n))
    return ProcessSpec(argv, {"PATH": os.defpath}, Path("/"))


def request(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 5, "method": method, "params": params}).encode()


async def test_a_huge_line_is_discarded_and_the_server_stays_usable() -> None:
    async def call(process: ServerProcess, reader: FrameReader) -> Frame | Oversized:
        await process.stdin.send_all(request("tools/call", name="echo") + b"\n")
        return await anext(reader)

    with trio.fail_after(PATIENCE):
        async with running(evil_spec("huge_line", n=200)) as process:
            reader = FrameReader(process.stdout, cap_bytes=1024 * 1024)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            first = await call(process, reader)
            second = await call(process, reader)
            grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert first == second
    assert isinstance(first, Oversized)
    assert (first.size_bytes > 200 * 1024 * 1024, recover_id(first.head)) == (True, 5)
    assert grown_kib < 64 * 1024


@pytest.mark.parametrize("mode", ["bad_utf8", "deep_json", "lone_surrogate", "nan"])
async def test_the_id_of_what_hostile_servers_send_is_recovered(mode: str) -> None:
    with trio.fail_after(PATIENCE):
        async with running(evil_spec(mode)) as process:
            await process.stdin.send_all(request("tools/call", name="echo") + b"\n")
            frame = await anext(FrameReader(process.stdout))

    assert isinstance(frame, Frame)
    assert recover_id(frame.data) == 5


async def test_frames_are_written_whole_and_in_order() -> None:
    pipe = Pipe()
    writer = FrameWriter(pipe)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        async with trio.open_nursery() as senders:
            for each in range(50):
                senders.start_soon(writer.send, b"%d" % each * 20)
        nursery.cancel_scope.cancel()

    assert sorted(pipe.taken.split()) == sorted(b"%d" % each * 20 for each in range(50))


async def test_a_cancelled_sender_never_leaves_half_a_frame(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pipe = Pipe(room_bytes=20)
    writer = FrameWriter(pipe)
    began: list[str] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        async with trio.open_nursery() as senders:
            senders.start_soon(writer.send, b"a" * 30, lambda: began.append("a"))
            await trio.testing.wait_all_tasks_blocked(0.01)
            senders.start_soon(writer.send, b"b" * 30, lambda: began.append("b"))
            await trio.testing.wait_all_tasks_blocked(0.01)

            senders.cancel_scope.cancel()
        pipe.room_bytes = sys.maxsize
        await writer.send(b"c" * 30, lambda: began.append("c"))
        nursery.cancel_scope.cancel()

    assert pipe.taken == b"a" * 30 + b"\n" + b"c" * 30 + b"\n"
    assert began == ["a", "c"]


async def test_the_callback_runs_before_the_first_byte() -> None:
    pipe = Pipe()
    seen: list[bytes] = []
    writer = FrameWriter(pipe)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        await writer.send(b"first", lambda: seen.append(pipe.taken))
        await writer.send(b"second", lambda: seen.append(pipe.taken))
        nursery.cancel_scope.cancel()

    assert seen == [b"", b"first\n"]


@pytest.mark.parametrize(("frames", "size_bytes"), [(64, 10), (4, 1024 * 1024)])
async def test_a_full_queue_refuses_and_writes_nothing_of_the_refused(
    autojump_clock: trio.testing.MockClock, frames: int, size_bytes: int
) -> None:
    pipe = Pipe(room_bytes=3, piece_bytes=1_000_000)
    writer = FrameWriter(pipe)
    began: list[str] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        async with trio.open_nursery() as senders:
            for _ in range(frames):
                senders.start_soon(writer.send, b"a" * size_bytes)
            await trio.testing.wait_all_tasks_blocked(0.01)

            with pytest.raises(WriterFullError):
                await writer.send(b"refused", lambda: began.append("refused"))

            pipe.room_bytes = sys.maxsize
        await writer.send(b"accepted")
        nursery.cancel_scope.cancel()

    assert pipe.taken == (b"a" * size_bytes + b"\n") * frames + b"accepted\n"
    assert began == []


async def test_a_frame_larger_than_the_queue_passes_when_nothing_waits() -> None:
    pipe = Pipe(piece_bytes=100_000)
    writer = FrameWriter(pipe, max_bytes=10)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        await writer.send(b"a" * 1000)
        nursery.cancel_scope.cancel()

    assert pipe.taken == b"a" * 1000 + b"\n"


async def outcome(writer: FrameWriter, frame: bytes, outcomes: dict[bytes, object]) -> None:
    try:
        await writer.send(frame)
        outcomes[frame] = "sent"
    except (WriterFullError, FrameCutError) as error:
        outcomes[frame] = type(error)


async def test_a_peer_that_stops_reading_ends_the_writer_with_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pipe = Pipe(room_bytes=9)
    writer = FrameWriter(pipe)
    outcomes: dict[bytes, object] = {}
    async with trio.open_nursery() as senders:
        for each in (b"sent", b"cut__", b"unsent"):
            senders.start_soon(outcome, writer, each, outcomes)
            await trio.testing.wait_all_tasks_blocked(0.01)

        with pytest.raises(WriterStalledError, match="5 bytes within 10 s"):
            await writer.run()

    await outcome(writer, b"late", outcomes)
    assert writer.is_dead
    assert pipe.taken == b"sent\ncut_"
    assert outcomes == {
        b"sent": "sent",
        b"cut__": FrameCutError,
        b"unsent": WriterFullError,
        b"late": WriterFullError,
    }


async def break_it(pipe: Pipe, scope: trio.CancelScope) -> None:
    pipe.is_broken = True


async def cancel_it(pipe: Pipe, scope: trio.CancelScope) -> None:
    scope.cancel()


@pytest.mark.parametrize("ending", [break_it, cancel_it])
async def test_every_sender_learns_that_the_writer_ended(
    autojump_clock: trio.testing.MockClock,
    ending: Callable[[Pipe, trio.CancelScope], Awaitable[None]],
) -> None:
    pipe = Pipe(room_bytes=3)
    writer = FrameWriter(pipe)
    outcomes: dict[bytes, object] = {}
    async with trio.open_nursery() as nursery:
        scope = await nursery.start(run_in_a_scope, writer)
        nursery.start_soon(outcome, writer, b"first", outcomes)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(outcome, writer, b"second", outcomes)
        await trio.testing.wait_all_tasks_blocked(0.01)

        await trio.lowlevel.checkpoint()
        nursery.start_soon(ending, pipe, scope)

    assert outcomes == {b"first": FrameCutError, b"second": WriterFullError}


async def run_in_a_scope(
    writer: FrameWriter, *, task_status: trio.TaskStatus[trio.CancelScope]
) -> None:
    with trio.CancelScope() as scope:
        task_status.started(scope)
        await writer.run()


async def test_a_server_that_does_not_read_is_refused_and_can_be_ended() -> None:
    refused = 0

    async def call(writer: FrameWriter) -> None:
        nonlocal refused
        try:
            await writer.send(request("tools/call", x="x" * 10_000))
        except (WriterFullError, FrameCutError):
            refused += 1

    with trio.fail_after(PATIENCE):
        async with running(evil_spec("no_read")) as process:
            writer = FrameWriter(process.stdin)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.run)
                for _ in range(1000):
                    nursery.start_soon(call, writer)
                await trio.testing.wait_all_tasks_blocked(0.05)
                refused_at_once = refused
                await process.stop(0.05)

    # A pipe of 64 KiB took a few frames, the queue 64; ending the server answered the rest.
    assert 1000 - 64 - 20 <= refused_at_once <= 1000 - 64
    assert refused >= 1000 - 20
    assert writer.is_dead


class Kept:
    """The file behind a large frame; reading fails after `good_bytes`."""

    def __init__(self, data: bytes, good_bytes: int = sys.maxsize) -> None:
        self._data = data
        self._good_bytes = good_bytes

    async def read(self, start: int, size_bytes: int) -> bytes:
        await trio.lowlevel.checkpoint()
        if start + size_bytes > self._good_bytes:
            raise OSError(errno.EIO, "it is broken")
        return self._data[start : start + size_bytes]


def large(kept: Kept, size_bytes: int) -> LargeFrame:
    return LargeFrame(b"<", LargeResult(kept, 1, size_bytes - 1, b"", b"", b"spliced "), b">")


async def test_a_large_frame_is_written_in_pieces_and_as_one() -> None:
    written = b"(" + os.urandom(3 * PIECE_BYTES) + b"\r)"
    # A bare CR ends a line to some readers, and is a space between the tokens of JSON.
    data = written.replace(b"\r", b" ")
    pipe = Pipe(piece_bytes=100_000)
    writer = FrameWriter(pipe, max_bytes=10)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        async with trio.open_nursery() as senders:
            senders.start_soon(writer.send, large(Kept(written), len(written)))
            await trio.lowlevel.checkpoint()
            senders.start_soon(writer.send, b"next")
        nursery.cancel_scope.cancel()

    assert pipe.taken == b"<spliced " + data[1:-1] + b">\nnext\n"


async def test_a_cancelled_sender_of_a_large_frame_leaves_no_half_of_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    data = b"(" + b"x" * PIECE_BYTES + b")"
    pipe = Pipe(room_bytes=20, piece_bytes=100_000)
    writer = FrameWriter(pipe)
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        async with trio.open_nursery() as senders:
            senders.start_soon(writer.send, large(Kept(data), len(data)))
            await trio.testing.wait_all_tasks_blocked(0.01)

            senders.cancel_scope.cancel()
        pipe.room_bytes = sys.maxsize
        await writer.send(b"next")
        nursery.cancel_scope.cancel()

    assert pipe.taken == b"<spliced " + data[1:-1] + b">\nnext\n"


async def test_a_slow_reader_of_a_large_frame_has_its_time_for_each_piece(
    autojump_clock: trio.testing.MockClock,
) -> None:
    data = b"(" + b"x" * PIECE_BYTES * 4 + b")"
    pipe = Pipe(room_bytes=0, piece_bytes=1_000_000)
    writer = FrameWriter(pipe)

    async def read_slowly() -> None:
        while True:
            await trio.sleep(9)
            pipe.room_bytes += PIECE_BYTES

    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        nursery.start_soon(read_slowly)
        await writer.send(large(Kept(data), len(data)))
        nursery.cancel_scope.cancel()

    assert len(pipe.taken) == len(data) + len(b"<spliced >\n") - len(b"()")


async def test_a_peer_that_stops_reading_a_large_frame_ends_the_writer_with_an_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    data = b"(" + b"x" * PIECE_BYTES * 4 + b")"
    pipe = Pipe(room_bytes=PIECE_BYTES + 100, piece_bytes=1_000_000)
    writer = FrameWriter(pipe)
    size_bytes = len(b"<spliced >") + len(data) - len(b"()")

    async def send() -> None:
        with pytest.raises(FrameCutError):
            await writer.send(large(Kept(data), len(data)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked(0.01)

        with pytest.raises(WriterStalledError, match=f"{size_bytes} bytes within 10 s"):
            await writer.run()

    assert len(pipe.taken) == PIECE_BYTES + 100


@pytest.mark.parametrize("good_bytes", [sys.maxsize, PIECE_BYTES * 2])
async def test_a_large_frame_that_cannot_be_ended_ends_the_stream(
    autojump_clock: trio.testing.MockClock, good_bytes: int
) -> None:
    data = b"(" + b"x" * PIECE_BYTES * 2
    pipe = Pipe(piece_bytes=1_000_000)
    writer = FrameWriter(pipe)
    outcomes: dict[bytes, object] = {}

    async def send() -> None:
        with pytest.raises(FrameCutError):
            await writer.send(large(Kept(data, good_bytes), len(data) + PIECE_BYTES))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(outcome, writer, b"next", outcomes)
        await trio.testing.wait_all_tasks_blocked(0.01)

        with pytest.raises(WriterStalledError, match="lost while it was written"):
            await writer.run()

    assert outcomes == {b"next": WriterFullError}
    assert not pipe.taken.endswith(b"\n")


def test_a_frame_with_a_newline_is_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        trio.run(FrameWriter(Pipe()).send, b"a\nb")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"x":"', 7),
        (b'  { "id" : -12 , "x":', -12),
        (b'{"id":"ab\\"c\\u00e9","x":[', 'ab"cé'),
        (b'{"result":{"id":1},"x":[{"id":2}],"id":3}', 3),
        (b'{"method":"id","id":4}', 4),
        (b'{"a":"\\"id\\":9,","id":5}', 5),
        (b'{"x":"\xff\xfe","id":6}', 6),
        (b'{"x":{"y":"}"},"id":8}', 8),
        (b'{"id":12', None),
        (b'{"id":12.5}', 12.5),
        (b'{"id":1.0,"x":[', 1.0),
        (b'{"id":1e3}', 1000.0),
        (b'{"id":1e999}', None),
        (b'{"id":1.}', None),
        (b'{"id":1.5', None),
        (b'{"id":007}', None),
        (b'{"id":null}', None),
        (b'{"id":[1]}', None),
        (b'{"id":"\xff"}', None),
        (b'{"id":"' + b"x" * 600 + b'"}', None),
        (b'{"id":"cut', None),
        (b'{"x":"never closed, "id":1', None),
        (b'[{"id":1}]', None),
        (b"42", None),
        (b"", None),
        (b'{"x":' + b"[" * 200_000, None),
        (b'{"x":"' + b"\\" * 200_000, None),
        (b'{"x":"' + b'\\"' * 100_000 + b'","id":1}', None),
    ],
)
def test_an_id_is_recovered_from_a_broken_frame_or_not_at_all(
    head: bytes, expected: float | str | None
) -> None:
    assert recover_id(head) == expected


async def test_what_is_left_has_one_writer_at_a_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    send, receive = trio.testing.memory_stream_one_way_pair()
    asked: list[str] = []
    writer = FrameWriter(send)
    writer.open(lambda: asked.append("drain"))
    with trio.move_on_after(1):
        await writer.send(b"withdrawn")
    writer.post(b"one")
    asked_first = list(asked)

    is_there = await writer.drain()

    writer.post(b"two")
    assert (asked_first, is_there, asked) == (["drain"], True, ["drain", "drain"])
    assert await receive.receive_some() == b"one\n"


async def test_a_peer_that_is_gone_spends_a_writer_without_a_task() -> None:
    send, receive = trio.testing.memory_stream_one_way_pair()
    writer = FrameWriter(send)
    writer.open(lambda: None)
    writer.post(b"one")
    await receive.aclose()

    is_there = await writer.drain()

    assert (is_there, writer.is_dead) == (False, True)


async def test_a_large_line_from_a_pipe_is_read_whole_and_lets_others_run() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            for _ in range(64):
                pipe.write(b"x" * 65_536)
            pipe.write(b"\n")

    async with trio.open_nursery() as nursery, trio.lowlevel.FdStream(reading) as stream:
        nursery.start_soon(trio.to_thread.run_sync, write)
        nursery.start_soon(count_turns)

        (line,) = await FrameReader(stream).some()

        nursery.cancel_scope.cancel()
    assert line == Frame(b"x" * 64 * 65_536)
    assert turns


@pytest.mark.parametrize("size", [1, 4096, 65_535, 65_536, 300_000])
async def test_a_frame_of_any_size_is_written_whole_with_one_newline(size: int) -> None:
    ours, theirs = trio.socket.socketpair()
    stream = trio.SocketStream(ours)
    writer = FrameWriter(stream, max_bytes=1 << 20)
    received = bytearray()
    is_whole = trio.Event()

    async def read() -> None:
        while not received.endswith(b"\n"):
            received.extend(await theirs.recv(65_536))
        is_whole.set()

    async with stream, trio.SocketStream(theirs), trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        nursery.start_soon(read)

        await writer.send(b"y" * size)

        await is_whole.wait()
        nursery.cancel_scope.cancel()
    assert bytes(received) == b"y" * size + b"\n"
