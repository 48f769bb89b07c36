"""The tokens of pieces of text, counted ahead in a process of their own and kept over restarts.

Whoever needs a number at once asks `costs`, which has all that was counted so far.
"""

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
import trio

from capd.adapters.tokens.counted_texts import NotCountedError
from capd.adapters.tokens.token_counts import VOCABULARY
from capd.core.index.token_costs import TokenCosts

MOST_PIECES = 200_000
"""About 20 MB: a catalog of ten thousand capabilities has a tenth of it."""

log = structlog.get_logger(actor="index")


class Counts(Protocol):
    """What counts texts (`counted_texts`)."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the tokens of each; raise NotCountedError."""
        ...


class _Kept(msgspec.Struct):
    vocabulary: str
    pieces: dict[str, int]


class PieceCounts:
    """What is known of pieces, for everybody in the daemon."""

    def __init__(self, counts: Counts | None = None, cache_file: Path | None = None) -> None:
        """Without `counts` nothing is ever counted, and texts are taken for too long."""
        self._counts = counts
        self._file = cache_file
        self._known: dict[str, int] = {}
        self._was_read = False
        self._turn = trio.Lock()
        self.costs = TokenCosts(self._known)

    async def learn(self, texts: Iterable[str]) -> bool:
        """Count what of `texts` is not known yet; return whether all of it is now."""
        if self._counts is None:
            return False
        async with self._turn:
            if not self._was_read and self._file is not None:
                self._known.update(await trio.to_thread.run_sync(_read, self._file))
            self._was_read = True
            unknown = self.costs.unknown(texts)
            if not unknown:
                return True
            asked = {piece.encode(errors="replace"): piece for piece in unknown}
            try:
                counted = await self._counts.counted(list(asked))
            except NotCountedError as error:
                log.warning("pieces_not_counted", reason=str(error))
                counted = error.counts
            if len(self._known) + len(counted) > MOST_PIECES:
                self._known.clear()
            self._known.update((asked[text], tokens) for text, tokens in counted.items())
            if self._file is not None:
                await trio.to_thread.run_sync(_write, self._file, dict(self._known))
            return len(counted) == len(asked)


def _read(file: Path) -> dict[str, int]:
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        # It only saves the counting.
        return {}
    return kept.pieces if kept.vocabulary == VOCABULARY else {}


def _write(file: Path, pieces: dict[str, int]) -> None:
    with suppress(OSError):
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(msgspec.json.encode(_Kept(VOCABULARY, pieces)))
        Path(temporary).replace(file)
