"""Newline-framed JSON-RPC over two descriptors, with little work for each message.

The driver's own cost is part of every row, so it must be small and the same for all: no thread, no
event loop, and no message is parsed while its time is taken.
"""

import os
import select
import time
from typing import Protocol

_READ_BYTES = 1 << 20


class WireError(Exception):
    """The peer closed the connection, refused, or timed out; the text says which."""


class Wire(Protocol):
    """A connection to one server or relay."""

    def send(self, message: bytes, deadline: float) -> None:
        """Send a whole message, which has no newline."""
        ...

    def receive(self, deadline: float) -> list[bytes]:
        """Return the messages that have arrived; wait for the first."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


def milliseconds_until(deadline: float) -> int:
    return max(0, int((deadline - time.monotonic()) * 1000))


class LineWire:
    """A wire over a pair of pipes, or over one socket as both; `close` closes them."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes
        self._parts: list[bytes] = []
        self._lines: list[bytes] = []
        for fd in {reads, writes}:
            os.set_blocking(fd, False)
        self._readable = select.poll()
        self._readable.register(reads, select.POLLIN)
        self._either = select.poll()
        self._either.register(reads, select.POLLIN)
        both = select.POLLOUT | (select.POLLIN if reads == writes else 0)
        self._either.register(writes, both)

    def send(self, message: bytes, deadline: float) -> None:
        rest = memoryview(message + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._writes, rest) :]
            except BlockingIOError:
                # If the relay is writing too, read from it, or both would wait for ever.
                if not self._either.poll(milliseconds_until(deadline)):
                    raise WireError("it does not read what it is sent") from None
                self._read()
            except OSError as error:
                raise WireError(f"it closed its input: {error.strerror}") from None

    def receive(self, deadline: float) -> list[bytes]:
        while not self._lines:
            if not self._readable.poll(milliseconds_until(deadline)):
                raise WireError("no answer in time")
            self._read()
        lines, self._lines = self._lines, []
        return lines

    def fileno(self) -> int:
        return self._reads

    def close(self) -> None:
        for fd in {self._reads, self._writes}:
            os.close(fd)

    def _read(self) -> None:
        try:
            chunk = os.read(self._reads, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise WireError(f"reading failed: {error.strerror}") from None
        if not chunk:
            raise WireError("it closed its output")
        first, *others = chunk.split(b"\n")
        self._parts.append(first)
        for part in others:
            if line := b"".join(self._parts):
                self._lines.append(line)
            self._parts = [part]
