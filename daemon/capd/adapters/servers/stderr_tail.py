"""Keeps the last lines of a server's stderr, for a person who asks why the server ended.

stderr is always read, so that the server never blocks on it. Only the last 64 KiB are kept.
"""

import os

import trio

_KEPT_BYTES = 64 * 1024
_PAUSE = 0.01


class StderrTail:
    """The last 64 KiB of a server's stderr."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_blocking(fd, False)
        self._kept = bytearray()
        self._is_cut = False

    async def drain(self) -> None:
        """Read until every process that could write has closed the pipe."""
        while True:
            await trio.lowlevel.wait_readable(self._fd)
            size_bytes = self._take()
            if size_bytes == 0:
                return
            if size_bytes is not None and size_bytes >= _KEPT_BYTES:
                await trio.sleep(_PAUSE)  # slow a flood down

    def read_available(self) -> None:
        """Read what is in the pipe, without waiting for processes that may still write to it."""
        for _ in range(2):
            if not self._take():
                return

    def lines(self) -> list[str]:
        """Return the last lines, safe to print.

        A line whose beginning was dropped is left out, unless it is the only one.
        """
        lines = self._kept.decode("utf-8", "replace").split("\n")
        if self._is_cut and len(lines) > 1:
            del lines[0]
        if not lines[-1]:
            lines.pop()
        return [printable(line.removesuffix("\r")) for line in lines]

    def close(self) -> None:
        """Close the reading end."""
        os.close(self._fd)

    def _take(self) -> int | None:
        """Read the pipe once; return the number of bytes read, None if nothing was there."""
        try:
            chunk = os.read(self._fd, _KEPT_BYTES)
        except BlockingIOError:
            return None
        self._kept += chunk
        if len(self._kept) > _KEPT_BYTES:
            del self._kept[:-_KEPT_BYTES]
            self._is_cut = True
        return len(chunk)


def printable(line: str) -> str:
    """Escape unprintable characters other than tabs: such characters could move the cursor."""
    if line.isprintable():
        return line
    return "".join(
        each if each.isprintable() or each == "\t" else each.encode("unicode_escape").decode()
        for each in line
    )
