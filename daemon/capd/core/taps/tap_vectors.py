"""Reads and writes `vectors.bin`: the vectors that a tap ships for its own phrases.

A tap is a folder of capabilities. Messages are compared with its phrases by embedding vectors.

`capd tap build` writes the file. With it the tap's phrases need not be embedded after the tap is
installed. Strangers write such files, so every number in one is checked. If anything is wrong, the
phrases are embedded as if there were no file.

    magic 8 "capdtapv" | version u32 | dimensions u32 | entries u32 | zero u32
    | sha256 of the model's key, 32
    | entries x the first 16 bytes of a text's sha256, ascending
    | entries x dimensions x float16, the unit vector of each text

All numbers are little-endian. A text is identified by its hash, so a changed phrase has no vector.
Numbers are float16: with int8, five of 1,520 messages of the development sets got suggestions in
another order, with float16 none (docs/design/routing.md).

A tap's vectors are used for the phrases of its own capabilities, except for phrases that another
tap has as well: a wrong vector would change how the other tap's capabilities are found.
"""

import hashlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capd.core.errors import CapdError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]
    Stored = npt.NDArray[np.float16]

FILE = "vectors.bin"
MOST_ENTRIES = 100_000
_MAGIC = b"capdtapv"
_VERSION = 1
_HEAD = struct.Struct("<8s4I32s")
_DIGEST_BYTES = 16
_NUMBER_BYTES = 2
_MOST_OFF_UNIT = 0.01
"""How far the length of a vector may be from 1. float16 changes it by less than 0.0005."""
_REPAIR = "`capd tap build` writes it anew"


class TapVectorsError(CapdError):
    """A tap's file `vectors.bin` cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class TapVectors:
    """The vectors in a tap's file `vectors.bin`, by the hashes of their texts."""

    rows: "Mapping[bytes, int]"
    vectors: "Stored"

    def of(self, texts: Iterable[str]) -> "dict[str, Vectors]":
        """Return those of `texts` that the file has a vector for, with their vectors."""
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        found = ((text, self.rows.get(_digest(text))) for text in texts)
        return {
            text: self.vectors[row].astype(np.float32) for text, row in found if row is not None
        }


def largest_bytes(dimensions: int) -> int:
    """Return the size in bytes of the largest valid `vectors.bin` for this many dimensions."""
    return _size_bytes(MOST_ENTRIES, dimensions)


def read_vectors(data: bytes, model_key: str, dimensions: int) -> TapVectors:
    """Return the vectors in `data`, the content of a tap's file `vectors.bin`.

    `model_key` identifies the embedding model that is in use.

    Raises:
        TapVectorsError: it is damaged, or was made with another model.
    """
    import numpy as np  # noqa: PLC0415 - as above

    entries = checked_head(data, model_key, dimensions)
    vectors_at = _HEAD.size + entries * _DIGEST_BYTES
    digests = [data[at : at + _DIGEST_BYTES] for at in range(_HEAD.size, vectors_at, _DIGEST_BYTES)]
    vectors = np.frombuffer(data, "<f2", offset=vectors_at).reshape(entries, dimensions)
    # A part at a time: as float32 all of them would take twice the memory of the file.
    for at in range(0, entries, 4096):
        lengths = np.linalg.norm(vectors[at : at + 4096].astype(np.float32), axis=1)
        if not bool(np.all(np.abs(lengths - 1) <= _MOST_OFF_UNIT)):
            raise _unusable("it has vectors that are none: their length is not 1")
    return TapVectors({digest: row for row, digest in enumerate(digests)}, vectors)


def checked_head(data: bytes, model_key: str, dimensions: int) -> int:
    """Return how many vectors a `vectors.bin` has, from its head and length; read no vector.

    Raises:
        TapVectorsError: it is damaged, or was made with another model.
    """
    if len(data) < _HEAD.size:
        raise _unusable("it is cut short")
    magic, version, found_dimensions, entries, _, model = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise _unusable("it is no file of vectors")
    if version != _VERSION:
        raise _unusable(f"its format is {version}, and this capd reads {_VERSION}")
    if (model, found_dimensions) != (_model_digest(model_key), dimensions):
        raise _unusable("another model made it")
    if entries > MOST_ENTRIES:
        raise _unusable(
            f"it says that it has {entries:,} vectors, and at most {MOST_ENTRIES:,} are read"
        )
    if len(data) != _size_bytes(entries, dimensions):
        raise _unusable(f"it says that it has {entries:,} vectors, and has another length")
    return int(entries)


def written_vectors(vectors: "Mapping[str, Vectors]", model_key: str, dimensions: int) -> bytes:
    """Return the content of a `vectors.bin` with `vectors`, by text.

    Equal input gives equal bytes.
    """
    by_digest = {_digest(text): vector for text, vector in vectors.items()}
    ordered = sorted(by_digest)
    head = _HEAD.pack(_MAGIC, _VERSION, dimensions, len(ordered), 0, _model_digest(model_key))
    rows = (by_digest[digest].astype("<f2").tobytes() for digest in ordered)
    return b"".join((head, *ordered, *rows))


def spoken_for(
    texts_by_tap: Sequence[tuple[str, Collection[str]]], trusted: Collection[str]
) -> dict[str, list[str]]:
    """Return, by tap, the texts for which the tap's own vectors are used.

    `texts_by_tap` has the texts of each tap's capabilities. The taps in `trusted` are those of capd
    itself, whose vectors are used even for texts that other taps have as well.
    """
    taps_of: dict[str, set[str]] = {}
    for tap, texts in texts_by_tap:
        for text in texts:
            taps_of.setdefault(text, set()).add(tap)
    return {
        tap: [text for text in texts if tap in trusted or taps_of[text] == {tap}]
        for tap, texts in texts_by_tap
    }


def _unusable(reason: str) -> TapVectorsError:
    return TapVectorsError(f"left out, so its phrases are embedded here: {reason}; {_REPAIR}")


def _size_bytes(entries: int, dimensions: int) -> int:
    return _HEAD.size + entries * (_DIGEST_BYTES + dimensions * _NUMBER_BYTES)


def _digest(text: str) -> bytes:
    # `surrogatepass`, so that texts that differ only in lone surrogates have different hashes.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]


def _model_digest(model_key: str) -> bytes:
    return hashlib.sha256(model_key.encode()).digest()
