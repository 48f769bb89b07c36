"""Counts the tokens of texts in a separate process, each text once.

The last `MOST_KNOWN` counts are kept by a digest of the text. No text is kept.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Protocol

import trio

from capd.adapters.tokens import counting_process
from capd.core.errors import CapdError

MOST_KNOWN = 20_000
MOST_BYTES = 8 << 20
"""The most bytes of texts for one process; a single longer text gets a process of its own. So the
large definitions of one server do not use up the time for all others."""
TIMEOUT = 120.0
_DIGEST_BYTES = 16
_LONGEST_REASON = 300


class NotCountedError(CapdError):
    """Some texts were not counted; the message says why. `counts` has the counts of the others."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.counts: dict[bytes, int] = {}


class Counts(Protocol):
    """Counts the tokens of texts, as `CountedTexts` does."""

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the token count of each text.

        Raises:
            NotCountedError: some could not be counted.
        """
        ...


class CountedTexts:
    """Counts the tokens of texts in a separate process, and caches each count."""

    def __init__(self) -> None:
        self._known: dict[bytes, int] = {}
        self._turn = trio.Lock()

    async def counted(self, texts: Iterable[bytes]) -> dict[bytes, int]:
        """Return the number of tokens of each of `texts`, by text.

        Raises:
            NotCountedError: the process failed.
        """
        distinct = list(dict.fromkeys(texts))
        # One process at a time; a caller that waited may find its texts counted.
        async with self._turn:
            digests = await trio.to_thread.run_sync(_digests, distinct)
            by_text = dict(zip(distinct, digests, strict=True))
            unknown = [text for text in distinct if by_text[text] not in self._known]
            counts = {t: self._known[d] for t, d in by_text.items() if d in self._known}
            failed: NotCountedError | None = None
            for batch in _batches(unknown):
                try:
                    counts.update(zip(batch, await _count(batch), strict=True))
                except NotCountedError as error:
                    failed = error
            for text, tokens in counts.items():
                # Moved to the end; the first entries are dropped first.
                self._known.pop(by_text[text], None)
                self._known[by_text[text]] = tokens
            while len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        if failed is not None:
            failed.counts = counts
            raise failed
        return counts


def _batches(texts: list[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size_bytes = 0
    for text in texts:
        if batch and size_bytes + len(text) > MOST_BYTES:
            yield batch
            batch, size_bytes = [], 0
        batch.append(text)
        size_bytes += len(text)
    if batch:
        yield batch


def command() -> list[str]:
    """Return the command that starts the process which counts tokens for this daemon."""
    # -E -P: neither PYTHONPATH nor the working directory is searched for modules.
    return [sys.executable, "-E", "-P", "-m", counting_process.__name__, str(os.getpid())]


async def _count(texts: list[bytes]) -> list[int]:
    kept = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    with trio.move_on_after(TIMEOUT):
        try:
            done = await trio.run_process(
                command(),
                stdin=counting_process.written(texts),
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=kept,
                start_new_session=True,
            )
        except OSError as error:
            raise NotCountedError(f"Tokens are not counted: {error}") from error
        try:
            counts = counting_process.read(done.stdout)
        except ValueError:
            counts = []
        if done.returncode == 0 and len(counts) == len(texts):
            return counts
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        why = said[:_LONGEST_REASON] or f"the counting process ended with {done.returncode}"
        raise NotCountedError(f"Tokens are not counted: {why}")
    raise NotCountedError(f"Tokens are not counted: it took longer than {TIMEOUT:g} s")


def _digests(texts: list[bytes]) -> list[bytes]:
    return [blake2b(text, digest_size=_DIGEST_BYTES).digest() for text in texts]
