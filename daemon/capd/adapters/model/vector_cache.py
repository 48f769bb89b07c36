"""Trigger vectors on disk, so that a restart does not embed the whole catalogue again.

The file is a cache, never an authority: one that is damaged, made by another model or not
private to the user is treated as empty, and `reason` says why. It holds sha256 hashes of texts
beside their vectors, no text; the embedder gives it texts from the catalogue only, never a
user's message, because a hash of a short message can be guessed.

    magic 8 | version u32 | dimensions u32 | entries u32 | zero u32 | sha256 of the model key
    | sha256 of everything else | entries x sha256 of a text | entries x dimensions x f32

One process owns a file. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from capd.adapters.private_files import read_private, write_whole
from capd_protos.codec import MalformedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


MAX_ENTRIES = 200_000

_MAGIC = b"capdvec\n"
_VERSION = 1
_HEAD = struct.Struct("<8s4I32s")
_DIGEST_BYTES = 32
_PAYLOAD_AT = _HEAD.size + _DIGEST_BYTES
_FLOAT_BYTES = 4


class VectorCache:
    """Vectors of one model by text, kept in one file.

    `reason` says in one line why the file could not be used or written; None if all is well.
    """

    reason: str | None

    def __init__(
        self, path: Path, manifest_key: str, dimensions: int, max_entries: int = MAX_ENTRIES
    ) -> None:
        """Load the usable vectors. Blocks. A file that does not exist counts as empty."""
        self._path = path
        self._dimensions = dimensions
        self._max_entries = max_entries
        self._model = hashlib.sha256(manifest_key.encode()).digest()
        # Oldest first, in memory as in the file.
        self._vectors: dict[bytes, npt.NDArray[np.float32]] = {}
        self.reason = None
        try:
            self._vectors = self._parsed(read_private(path, self._size_bytes(max_entries)))
        except FileNotFoundError:
            pass
        except OSError as error:
            self.reason = f"vector cache {path} cannot be read: {error.strerror}"
        except MalformedError as error:
            self.reason = f"vector cache {path} is ignored: {error}"

    def __len__(self) -> int:
        """Count the vectors."""
        return len(self._vectors)

    def get(self, texts: Iterable[str]) -> dict[str, npt.NDArray[np.float32]]:
        """Return the known vectors, read-only, by text; a text that is absent is unknown."""
        found = ((text, self._vectors.get(_digest(text))) for text in texts)
        return {text: vector for text, vector in found if vector is not None}

    def put(self, vectors: Mapping[str, npt.NDArray[np.float32]]) -> None:
        """Add vectors, and write the whole file once: pass many at a time.

        The oldest are dropped if there are too many. If writing fails, `reason` says so. The
        vectors then stay in memory, the old file stays on disk, and the next `put` writes
        everything again.
        """
        import numpy as np  # noqa: PLC0415 -- lazy: it takes 60 ms

        if not vectors:
            return
        for text, vector in vectors.items():
            own = np.array(vector, np.float32)
            if own.shape != (self._dimensions,):
                raise ValueError(f"a vector of shape {own.shape} in {self._dimensions} dimensions")
            own.flags.writeable = False
            digest = _digest(text)
            self._vectors.pop(digest, None)
            self._vectors[digest] = own
        for digest in list(self._vectors)[: -self._max_entries]:
            del self._vectors[digest]
        try:
            self._save()
        except OSError as error:
            self.reason = f"vector cache {self._path} cannot be written: {error.strerror}"
        else:
            self.reason = None

    def _size_bytes(self, entries: int) -> int:
        return _PAYLOAD_AT + entries * (_DIGEST_BYTES + self._dimensions * _FLOAT_BYTES)

    def _parsed(self, content: bytes) -> dict[bytes, npt.NDArray[np.float32]]:
        import numpy as np  # noqa: PLC0415

        if len(content) < _PAYLOAD_AT:
            raise MalformedError("it is truncated")
        magic, version, dimensions, entries, _, model = _HEAD.unpack_from(content)
        if (magic, version) != (_MAGIC, _VERSION):
            raise MalformedError("it has another format")
        if (model, dimensions) != (self._model, self._dimensions):
            raise MalformedError("another model made it")
        if len(content) != self._size_bytes(entries):
            raise MalformedError("its length does not fit its number of entries")
        head, payload = content[: _HEAD.size], memoryview(content)[_PAYLOAD_AT:]
        if _checksum(head, payload) != content[_HEAD.size : _PAYLOAD_AT]:
            raise MalformedError("its checksum is wrong")
        vectors_at = entries * _DIGEST_BYTES
        digests = (
            bytes(payload[at : at + _DIGEST_BYTES]) for at in range(0, vectors_at, _DIGEST_BYTES)
        )
        matrix = np.frombuffer(payload, "<f4", offset=vectors_at)
        return dict(zip(digests, matrix.reshape(entries, dimensions), strict=True))

    def _save(self) -> None:
        """Replace the file atomically: readers see the old one or the new one."""
        head = _HEAD.pack(_MAGIC, _VERSION, self._dimensions, len(self._vectors), 0, self._model)
        payload = b"".join(
            [*self._vectors, *(vector.astype("<f4").tobytes() for vector in self._vectors.values())]
        )
        write_whole(self._path, [head + _checksum(head, payload), payload], is_durable=True)


def _digest(text: str) -> bytes:
    # Surrogates pass: two texts that differ only there must not share a vector.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _checksum(head: bytes, payload: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(payload)
    return digest.digest()
