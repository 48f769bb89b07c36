"""Results whose lines are too long to be parsed: found by their ends, passed on unread."""

import trio

from capd.adapters.large_frames import PIECE_BYTES
from capd.adapters.stdio_frames import Oversized
from capd.core.results.json_container import ContainerCheck
from capd.core.results.large_results import LargeResult
from capd.core.results.line_ends import LineEnds
from capd_protos.codec import MalformedError

HELD_BYTES = 16 * 1024 * 1024
"""A longer line is spooled."""
_CHECKED_BYTES = 64 * 1024
_END_BYTES = 4 * 1024


async def large_result(line: Oversized, ends: LineEnds | None) -> LargeResult:
    """Return the result in a response.

    Raises:
        MalformedError: it is no response with a result that can be told from what is around it.
        OSError: it cannot be read again.
    """
    if line.kept is None:
        raise MalformedError("it was discarded")
    if ends is None or not ends.is_result:
        raise MalformedError("its ends do not say whose result it is")
    start, end = ends.start, line.size_bytes - ends.after
    check = ContainerCheck()
    for at in range(start, end, PIECE_BYTES):
        piece = await line.kept.read(at, min(PIECE_BYTES, end - at))
        for begin in range(0, len(piece), _CHECKED_BYTES):
            check.feed(piece[begin : begin + _CHECKED_BYTES])
            # Others wait no longer than one of these takes.
            await trio.lowlevel.checkpoint()
    check.end()
    head = await line.kept.read(start, min(_END_BYTES, end - start))
    tail = await line.kept.read(max(start, end - _END_BYTES), min(_END_BYTES, end - start))
    return LargeResult(line.kept, start, end, head, tail)
