"""Token counts of pieces of text, computed in advance by a separate process and saved.

Code that needs a count at once uses `PieceCounts.costs`, which has all counts so far.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

import msgspec
import structlog
import trio

from capd.adapters.state_file import StateFile
from capd.adapters.tokens.counted_texts import NotCountedError
from capd.adapters.tokens.token_counts import VOCABULARY
from capd.core.index.token_costs import TokenCosts
from capd_protos.codec import JsonCodec

MOST_PIECES = 200_000
"""The most counts that are kept, in about 20 MB. A catalog of ten thousand capabilities needs a
tenth of them."""
MOST_BYTES = 256 << 20
"""The most bytes of the file; if it is longer, the next daemon counts again."""

log = structlog.get_logger(actor="index")


class Counts(Protocol):
    """The interface of a counter of tokens; in the daemon it is `CountedTexts`."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the number of tokens of each text, by text.

        Raises:
            NotCountedError: some texts were not counted.
        """
        ...


class _Kept(msgspec.Struct):
    vocabulary: str
    pieces: dict[str, int]


class PieceCounts:
    """The token counts of pieces of text that are known, shared by the whole daemon."""

    def __init__(self, counts: Counts | None = None, cache_file: Path | None = None) -> None:
        """Use the counts saved in `cache_file`, if it is given, and `counts` for other texts.

        Without `counts`, nothing is counted, and estimates are upper bounds.
        """
        self._counts = counts
        self._file: StateFile[_Kept] | None = None
        if cache_file is not None:
            self._file = StateFile(
                cache_file, JsonCodec(_Kept), most_bytes=MOST_BYTES, refuse=_other_vocabulary
            )
        self._known: dict[str, int] = {}
        self._was_read = False
        self._turn = trio.Lock()
        self.costs = TokenCosts(self._known)

    async def learn(self, texts: Iterable[str]) -> bool:
        """Count the tokens of those pieces of `texts` whose counts are unknown.

        Return whether the counts of these and of all earlier texts are known now.
        """
        if self._counts is None:
            return False
        async with self._turn:
            if not self._was_read and self._file is not None:
                kept = await self._file.load()
                self._known.update(kept.pieces if kept is not None else {})
            self._was_read = True
            # A large catalog's texts take a tenth of a second.
            unknown = await trio.to_thread.run_sync(self.costs.unknown, texts)
            if not unknown:
                return True
            asked = {piece.encode(errors="replace"): piece for piece in unknown}
            try:
                counted = await self._counts.counted(list(asked))
            except NotCountedError as error:
                log.warning("pieces_not_counted", reason=str(error))
                counted = error.counts
            is_full = len(self._known) + len(counted) > MOST_PIECES
            if is_full:
                self._known.clear()
            self._known.update((asked[text], tokens) for text, tokens in counted.items())
            if self._file is not None:
                # If the save fails, the next daemon counts again.
                await self._file.save(_Kept(VOCABULARY, dict(self._known)))
            return not is_full and len(counted) == len(asked)


def _other_vocabulary(kept: _Kept) -> str:
    is_ours = kept.vocabulary == VOCABULARY
    return "" if is_ours else f"counted with {kept.vocabulary}, this daemon has {VOCABULARY}"
