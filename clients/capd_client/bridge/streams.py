"""Many connections over one stream, such as the input and output of a command in a container.

A frame is one letter, four bytes with the number of a connection, four with the payload's length,
and the payload:

    o   a connection was made on the far side      e   a connection ended
    d   a connection's data, 64 KiB at most        w   a message of the bridge itself, in JSON

The near end is on the machine of the daemon. Both ends run this code, the far one on Python 3.8.
Neither trusts the other: the size of frames, the number of connections and the unwritten data are
bounded. A connection that reads too slowly is closed, so it never delays the others.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

_HEAD = struct.Struct(">cII")
MOST_PAYLOAD_BYTES = 65536
MOST_CONNECTIONS = 128
MOST_WAITING_BYTES = 16 << 20
"""The most unwritten bytes of one connection: a result may be a line of 8 MiB."""
MOST_WAITING_IN_ALL_BYTES = 64 << 20
_PAUSE_BYTES = 1 << 20
"""While this many bytes wait for the stream, connections are not read."""


class StreamEndedError(Exception):
    """The stream ended, or the other side broke its rules; the text is for a person."""


class _Connection:
    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self.end = end
        self.waiting = bytearray()
        self.is_ending = False


class Streams:
    """One end of a stream that carries many connections.

    The far side's end accepts connections, the near side's makes them.
    """

    def __init__(
        self,
        reading: int,
        writing: int,
        *,
        listener: socket.socket | None = None,
        connect: Callable[[], socket.socket] | None = None,
    ) -> None:
        """Create the end that reads from the descriptor `reading` and writes to `writing`.

        The far side passes its `listener`. The near side passes `connect`, which returns a new
        connection or raises OSError.
        """
        os.set_blocking(writing, False)
        self._reading, self._writing = reading, writing
        self._listener = listener
        self._connect = connect
        self._connections: dict[int, _Connection] = {}
        self._last = 0
        self._read = bytearray()
        self._out = bytearray()
        self._words: list[dict[str, Any]] = []

    def say(self, **members: object) -> None:
        """Send a message of the bridge itself to the other side: `members` as JSON."""
        self._put(b"w", 0, json.dumps(members).encode())

    def turn(
        self, timeout: float, others: Sequence[int] = ()
    ) -> tuple[list[dict[str, Any]], list[int]]:
        """Read and write once; return the other side's messages, and the readable ones of `others`.

        `others` are more descriptors to watch. If there is nothing to do, wait up to `timeout`
        seconds.

        Raises:
            StreamEndedError: the stream has ended.
        """
        by_end = {each.end.fileno(): number for number, each in self._connections.items()}
        readers = [self._reading, *others]
        if self._listener is not None and len(self._connections) < MOST_CONNECTIONS:
            readers.append(self._listener.fileno())
        if len(self._out) < _PAUSE_BYTES:
            readers += [
                fd for fd, number in by_end.items() if not self._connections[number].is_ending
            ]
        writers = [fd for fd, number in by_end.items() if self._connections[number].waiting]
        writers += [self._writing] if self._out else []
        ready, writable, _ = select.select(readers, writers, [], timeout)
        if self._writing in writable:
            self._flush()
        for fd in writable:
            if fd in by_end:
                self._write(by_end[fd])
        for fd in ready:
            if fd in by_end:
                self._take(by_end[fd])
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)
        if self._reading in ready:
            self._receive()
        words, self._words = self._words, []
        return words, [fd for fd in others if fd in ready]

    def drain(self, turns: int = 50) -> None:
        """Send the waiting data, in at most `turns` writes; each waits up to 0.1 s."""
        for _ in range(turns):
            if not self._out:
                return
            if select.select([], [self._writing], [], 0.1)[1]:
                self._flush()

    def close(self) -> None:
        """End every connection."""
        for number in list(self._connections):
            self._drop(number)

    def _put(self, kind: bytes, number: int, payload: bytes = b"") -> None:
        self._out += _HEAD.pack(kind, number, len(payload)) + payload
        # Long before this limit, connections are no longer read. So these bytes are answers to the
        # other end, which sends requests and reads nothing.
        if len(self._out) > MOST_WAITING_IN_ALL_BYTES:
            raise StreamEndedError("the other side reads nothing of what is sent to it")

    def _flush(self) -> None:
        try:
            sent = os.write(self._writing, self._out[:MOST_PAYLOAD_BYTES])
        except BlockingIOError:
            return
        except OSError as error:
            raise StreamEndedError(f"the stream ended ({error.strerror})") from error
        del self._out[:sent]

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            end = listener.accept()[0]
            self._last += 1
            self._connections[self._last] = _Connection(end)
            self._put(b"o", self._last)

    def _take(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        try:
            data = connection.end.recv(MOST_PAYLOAD_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._put(b"d", number, data)
        else:
            self._end(number)

    def _write(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        try:
            sent = connection.end.send(connection.waiting[:MOST_PAYLOAD_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self._end(number)
            return
        del connection.waiting[:sent]
        if connection.is_ending and not connection.waiting:
            self._drop(number)

    def _end(self, number: int) -> None:
        self._drop(number)
        self._put(b"e", number)

    def _drop(self, number: int) -> None:
        connection = self._connections.pop(number, None)
        if connection is not None:
            connection.end.close()

    def _receive(self) -> None:
        data = os.read(self._reading, MOST_PAYLOAD_BYTES)
        if not data:
            raise StreamEndedError("the stream ended")
        self._read += data
        while len(self._read) >= _HEAD.size:
            kind, number, size = _HEAD.unpack_from(self._read)
            if size > MOST_PAYLOAD_BYTES:
                raise StreamEndedError("the other side sends a frame that is too long")
            if len(self._read) < _HEAD.size + size:
                return
            payload = bytes(self._read[_HEAD.size : _HEAD.size + size])
            del self._read[: _HEAD.size + size]
            self._on_frame(kind, number, payload)

    def _on_frame(self, kind: bytes, number: int, payload: bytes) -> None:
        connection = self._connections.get(number)
        if kind == b"w":
            self._on_word(payload)
        elif kind == b"o" and self._connect is not None and connection is None:
            self._open(number, self._connect)
        elif kind == b"d":
            # Frames of a connection that has ended are ignored.
            if connection is not None and not connection.is_ending:
                self._on_data(number, connection, payload)
        elif kind == b"e":
            if connection is not None:
                connection.is_ending = True
                if not connection.waiting:
                    self._drop(number)
        else:
            raise StreamEndedError("the other side sends what is no frame")

    def _on_word(self, payload: bytes) -> None:
        try:
            word = json.loads(payload)
        except (ValueError, RecursionError):
            word = None
        if not isinstance(word, dict):
            raise StreamEndedError("the other side sends a word that is no JSON object")
        self._words.append(word)

    def _open(self, number: int, connect: Callable[[], socket.socket]) -> None:
        if len(self._connections) >= MOST_CONNECTIONS:
            self._put(b"e", number)
            return
        try:
            self._connections[number] = _Connection(connect())
        except OSError:
            self._put(b"e", number)

    def _on_data(self, number: int, connection: _Connection, payload: bytes) -> None:
        connection.waiting += payload
        waiting = sum(len(each.waiting) for each in self._connections.values())
        if len(connection.waiting) > MOST_WAITING_BYTES or waiting > MOST_WAITING_IN_ALL_BYTES:
            self._end(number)
