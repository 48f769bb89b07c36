"""Many connections over one stream, also with a hostile far side."""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd_client.bridge import streams as module
from capd_client.bridge.streams import MOST_PAYLOAD_BYTES, StreamEndedError, Streams


class Echo:
    """A listener that echoes its input, in place of the daemon's bridge socket."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(200)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                end = self.listener.accept()[0]
                threading.Thread(target=self._echo, args=(end,), daemon=True).start()

    @staticmethod
    def _echo(end: socket.socket) -> None:
        with end, contextlib.suppress(OSError):
            while data := end.recv(65536):
                end.sendall(data)

    def connect(self) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.connect(self.path)
        return end


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[Echo]:
    made = Echo(str(tmp_path / "echo"))
    yield made
    made.listener.close()


class Pair:
    """A near end, and the pipes that a far end has."""

    def __init__(self, echo: Echo) -> None:
        self.from_far, self.far_writes = os.pipe()
        self.far_reads, self.to_far = os.pipe()
        self.near = Streams(self.from_far, self.to_far, connect=echo.connect)

    def far(self, path: str) -> Streams:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        return Streams(self.far_reads, self.far_writes, listener=self.listener)

    def close(self) -> None:
        self.near.close()
        for each in (self.from_far, self.far_writes, self.far_reads, self.to_far):
            with contextlib.suppress(OSError):
                os.close(each)


@pytest.fixture
def pair(echo: Echo) -> Iterator[Pair]:
    made = Pair(echo)
    yield made
    made.close()


def frame(kind: bytes, number: int, payload: bytes = b"", *, size: int | None = None) -> bytes:
    return struct.pack(">cII", kind, number, len(payload) if size is None else size) + payload


def test_large_texts_of_several_connections_arrive_whole(pair: Pair, tmp_path: Path) -> None:
    path = str(tmp_path / "far")
    far = pair.far(path)
    sent = [bytes([number]) * (3 << 20) for number in range(4)]
    ends = []
    for _ in sent:
        end = socket.socket(socket.AF_UNIX)
        end.connect(path)
        ends.append(end)
    got = [bytearray() for _ in sent]
    writers = [
        threading.Thread(target=end.sendall, args=(data,), daemon=True)
        for end, data in zip(ends, sent, strict=True)
    ]
    for each in writers:
        each.start()

    while any(len(each) < 3 << 20 for each in got):
        far.turn(0.01)
        pair.near.turn(0.01)
        for end, data in zip(ends, got, strict=True):
            with contextlib.suppress(BlockingIOError):
                # Only this call: the writers' sockets block.
                data.extend(end.recv(1 << 20, socket.MSG_DONTWAIT))

    assert [bytes(each) for each in got] == sent
    far.close()
    for end in ends:
        end.close()
    pair.listener.close()


HOSTILE = {
    "a frame that is too long": frame(b"d", 1, size=MOST_PAYLOAD_BYTES + 1),
    "an unknown kind": frame(b"x", 1),
    "a word that is no JSON": frame(b"w", 0, b"{"),
    "a word that is no object": frame(b"w", 0, b"[]"),
    "a word nested without end": frame(b"w", 0, b"[" * 60_000),
    "a connection that is open already": frame(b"o", 1) + frame(b"o", 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whoever_breaks_the_rules_ends_the_stream(pair: Pair, name: str) -> None:
    os.write(pair.far_writes, HOSTILE[name])

    with pytest.raises(StreamEndedError):
        pair.near.turn(1.0)


def test_the_far_end_makes_no_connection_that_the_near_asks_for(pair: Pair, tmp_path: Path) -> None:
    far = pair.far(str(tmp_path / "far"))
    os.write(pair.to_far, frame(b"o", 1))

    with pytest.raises(StreamEndedError):
        far.turn(1.0)
    pair.listener.close()


def test_data_and_ends_of_unknown_connections_count_nothing(pair: Pair) -> None:
    os.write(pair.far_writes, frame(b"d", 7, b"x") + frame(b"e", 8) + frame(b"w", 0, b'{"a":1}'))

    assert pair.near.turn(1.0) == ([{"a": 1}], [])


def test_a_stream_that_ends_is_told(pair: Pair) -> None:
    os.close(pair.far_writes)

    with pytest.raises(StreamEndedError):
        pair.near.turn(1.0)


def heard(pair: Pair, count: int) -> list[tuple[bytes, int]]:
    """Return the kinds and numbers of frames that reach the far end."""
    found: list[tuple[bytes, int]] = []
    os.set_blocking(pair.far_reads, False)
    data = bytearray()
    while len(found) < count:
        pair.near.turn(0.01)
        with contextlib.suppress(BlockingIOError):
            data += os.read(pair.far_reads, 65536)
        while len(data) >= 9:
            kind, number, size = struct.unpack_from(">cII", data)
            found.append((kind, number))
            del data[: 9 + size]
    return found


def test_connections_are_bounded(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 3)
    os.write(pair.far_writes, b"".join(frame(b"o", number) for number in range(1, 6)))

    assert heard(pair, 2) == [(b"e", 4), (b"e", 5)]


def test_an_end_that_asks_and_never_reads_is_ended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_IN_ALL_BYTES", 1 << 20)
    monkeypatch.setattr(module, "MOST_CONNECTIONS", 0)

    def ask_without_end() -> None:
        # Each is answered with a frame of the same size, and the pipe takes a few thousand.
        for _ in range(1000):
            os.write(pair.far_writes, frame(b"o", 1) * 1000)
            pair.near.turn(1.0)

    with pytest.raises(StreamEndedError, match="reads nothing"):
        ask_without_end()

    assert len(pair.near._out) < 2 << 20


def test_a_connection_that_reads_nothing_is_ended_and_no_other(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_WAITING_BYTES", 1 << 20)
    deaf = socket.socket(socket.AF_UNIX)
    deaf.bind(str(tmp_path / "deaf"))
    deaf.listen()
    usual = pair.near._connect
    ends = iter([tmp_path / "deaf"])

    def connect() -> socket.socket:
        path = next(ends, None)
        if path is None:
            assert usual is not None
            return usual()
        end = socket.socket(socket.AF_UNIX)
        end.connect(str(path))
        return end

    pair.near._connect = connect
    os.write(pair.far_writes, frame(b"o", 1) + frame(b"o", 2))
    pair.near.turn(1.0)
    filling = frame(b"d", 1, b"x" * MOST_PAYLOAD_BYTES)
    writer = threading.Thread(
        target=lambda: [os.write(pair.far_writes, filling) for _ in range(40)], daemon=True
    )
    writer.start()

    ended = heard(pair, 1)
    while writer.is_alive():
        pair.near.turn(0.01)
    os.write(pair.far_writes, frame(b"d", 2, json.dumps("still here").encode()))
    echoed = heard(pair, 1)

    assert (ended, echoed) == ([(b"e", 1)], [(b"d", 2)])
    deaf.close()
