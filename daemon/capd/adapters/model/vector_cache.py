"""Vectors of the catalog's texts on disk, so that a restart does not embed all of them again.

The file is only a cache: one that is damaged, made by another model or not private to the user is
treated as empty, and `reason` says why. It contains sha256 hashes of texts beside their vectors,
and no text. Only texts of the catalog are cached, never a user's message, because the text of a
short message could be guessed from its hash.

    magic 8 | version u32 | dimensions u32 | entries u32 | zero u32 | sha256 of the model key
    | sha256 of everything else | entries x sha256 of a text | entries x dimensions x f16

Version 1 had f32. It can be read, and becomes version 2 when vectors are added.
float16 changes no decision of the development sets (docs/design/routing.md).

The file is mapped, so that unused vectors take no memory: as Python objects, 50,000 of them took 77
MB. One process owns a file and replaces it as a whole, so the mapped bytes never change. All
numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from capd.adapters.private_files import opened_private, write_whole
from capd_protos.codec import MalformedError

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.floating[Any]]


MAX_ENTRIES = 200_000

_MAGIC = b"capdvec\n"
_NUMBERS = {1: "<f4", 2: "<f2"}
"""How numbers are stored, by the version of the format."""
_VERSION = 2
_HEAD = struct.Struct("<8s4I32s")
_DIGEST_BYTES = 32
_PAYLOAD_AT = _HEAD.size + _DIGEST_BYTES
_PART_BYTES = 1 << 20


class _Mapped:
    """The vectors in a mapped file, which are found by the hashes of their texts."""

    def __init__(self, digests: npt.NDArray[np.uint8], vectors: Rows, content: mmap.mmap) -> None:
        import numpy as np  # noqa: PLC0415 -- lazy: it takes 60 ms

        self.digests = digests
        self.vectors = vectors
        self.content = content
        # Rows are found by the first eight bytes of a hash, and then compared as a whole. A dict
        # of 50,000 hashes would take 10 MB.
        keys = np.ascontiguousarray(digests[:, :8]).view("<u8").ravel()
        self._order = np.argsort(keys, kind="stable").astype(np.int32)
        self._keys = keys[self._order]

    def __len__(self) -> int:
        return len(self.digests)

    def rows(self, digests: list[bytes]) -> list[int]:
        """Return the index of the row of each hash; -1 for a hash that is not in the file."""
        import numpy as np  # noqa: PLC0415 -- as above

        if not digests or not len(self):
            return [-1] * len(digests)
        wanted = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, _DIGEST_BYTES)
        keys = np.ascontiguousarray(wanted[:, :8]).view("<u8").ravel()
        places = np.minimum(np.searchsorted(self._keys, keys), len(self) - 1)
        rows = self._order[places]
        is_right = (self.digests[rows] == wanted).all(axis=1)
        found: list[int] = np.where(is_right, rows, -1).tolist()
        return found


class VectorCache:
    """Vectors of one model by text, kept in one file.

    `reason` says in one line why the file could not be used or written; None if all is well.
    """

    reason: str | None

    def __init__(
        self, path: Path, manifest_key: str, dimensions: int, max_entries: int = MAX_ENTRIES
    ) -> None:
        """Open the cache in the file `path`, which need not exist. Blocks.

        `manifest_key` identifies the model, whose vectors have `dimensions` numbers. At most
        `max_entries` vectors are kept.
        """
        self._path = path
        self._dimensions = dimensions
        self._max_entries = max_entries
        self._model = hashlib.sha256(manifest_key.encode()).digest()
        self._stored: _Mapped | None = None
        self._unsaved: dict[bytes, Rows] = {}
        """The vectors that are not in the file; empty unless writing has failed."""
        self.reason = None
        self._load()

    def _load(self) -> None:
        try:
            self._stored = self._mapped()
        except FileNotFoundError:
            pass
        except OSError as error:
            self.reason = f"vector cache {self._path} cannot be read: {error.strerror}"
        except MalformedError as error:
            self.reason = f"vector cache {self._path} is ignored: {error}"

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._unsaved) + (len(self._stored) if self._stored is not None else 0)

    def get(self, texts: Iterable[str]) -> dict[str, Rows]:
        """Return the cached vectors by text, read-only; texts without one are left out."""
        wanted = list(texts)
        digests = [_digest(text) for text in wanted]
        rows = self._stored.rows(digests) if self._stored is not None else [-1] * len(wanted)
        found: dict[str, Rows] = {}
        for text, digest, row in zip(wanted, digests, rows, strict=True):
            unsaved = self._unsaved.get(digest)
            if unsaved is not None:
                found[text] = unsaved
            elif row >= 0:
                assert self._stored is not None
                found[text] = self._stored.vectors[row]
        return found

    def put(self, vectors: Mapping[str, Rows]) -> None:
        """Add vectors, and write the whole file once: pass many at a time.

        The oldest are dropped if there are too many. If writing fails, `reason` says so. The
        vectors then stay in memory, the old file stays on disk, and the next `put` writes
        everything again.

        Raises:
            ValueError: a vector has another number of dimensions than the cache.
        """
        import numpy as np  # noqa: PLC0415 -- lazy: it takes 60 ms

        if not vectors:
            return
        for text, vector in vectors.items():
            own = np.array(vector, np.float16)
            if own.shape != (self._dimensions,):
                raise ValueError(f"a vector of shape {own.shape} in {self._dimensions} dimensions")
            own.flags.writeable = False
            digest = _digest(text)
            self._unsaved.pop(digest, None)
            self._unsaved[digest] = own
        for digest in list(self._unsaved)[: -self._max_entries]:
            del self._unsaved[digest]
        try:
            self._save()
            self._stored = self._mapped()
        except (OSError, MalformedError) as error:
            said = error.strerror if isinstance(error, OSError) else str(error)
            self.reason = f"vector cache {self._path} cannot be written: {said}"
        else:
            self._unsaved = {}
            self.reason = None

    def rest(self) -> None:
        """Release the memory of pages of the file that were read. They are read again if needed."""
        if self._stored is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._stored.content.madvise(mmap.MADV_DONTNEED)

    def _size_bytes(self, entries: int, version: int = _VERSION) -> int:
        number_bytes = int(_NUMBERS[version][-1])
        return _PAYLOAD_AT + entries * (_DIGEST_BYTES + self._dimensions * number_bytes)

    def _mapped(self) -> _Mapped:
        import numpy as np  # noqa: PLC0415

        with opened_private(self._path, self._size_bytes(self._max_entries, 1)) as file:
            head = file.read(_PAYLOAD_AT)
            size = os.fstat(file.fileno()).st_size
            if len(head) < _PAYLOAD_AT:
                raise MalformedError("it is truncated")
            magic, version, dimensions, entries, _, model = _HEAD.unpack_from(head)
            if magic != _MAGIC or version not in _NUMBERS:
                raise MalformedError("it has another format")
            if (model, dimensions) != (self._model, self._dimensions):
                raise MalformedError("another model made it")
            if size != self._size_bytes(entries, version):
                raise MalformedError("its length does not fit its number of entries")
            checksum = hashlib.sha256(head[: _HEAD.size])
            # Read instead of mapped, so that the checksum's pages do not count as the process's.
            while part := file.read(_PART_BYTES):
                checksum.update(part)
            if checksum.digest() != head[_HEAD.size : _PAYLOAD_AT]:
                raise MalformedError("its checksum is wrong")
            content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        digests = np.frombuffer(content, np.uint8, entries * _DIGEST_BYTES, _PAYLOAD_AT)
        vectors = np.frombuffer(
            content,
            _NUMBERS[version],
            entries * dimensions,
            _PAYLOAD_AT + entries * _DIGEST_BYTES,
        )
        return _Mapped(
            digests.reshape(entries, _DIGEST_BYTES).copy(),
            vectors.reshape(entries, dimensions),
            content,
        )

    def _save(self) -> None:
        """Replace the file atomically: readers see the old one or the new one."""
        import numpy as np  # noqa: PLC0415

        stored, unsaved = self._stored, self._unsaved
        kept = np.arange(0)
        if stored is not None:
            # Not `np.setdiff1d`, which imports numpy.ma and so takes 1 MB.
            is_kept = np.ones(len(stored), bool)
            is_kept[[row for row in stored.rows(list(unsaved)) if row >= 0]] = False
            kept = np.flatnonzero(is_kept)
            # The oldest rows come first, in the file as in memory. If there are too many, these are
            # left out.
            kept = kept[max(0, len(kept) + len(unsaved) - self._max_entries) :]
        payload: list[bytes] = []
        if stored is not None and len(kept):
            payload.append(stored.digests[kept].tobytes())
        payload += unsaved
        if stored is not None:
            for at in range(0, len(kept), 4096):
                payload.append(stored.vectors[kept[at : at + 4096]].astype("<f2").tobytes())
        payload += [vector.astype("<f2").tobytes() for vector in unsaved.values()]
        entries = len(kept) + len(unsaved)
        head = _HEAD.pack(_MAGIC, _VERSION, self._dimensions, entries, 0, self._model)
        checksum = hashlib.sha256(head)
        for part in payload:
            checksum.update(part)
        write_whole(self._path, [head + checksum.digest(), *payload], is_durable=True)


def _digest(text: str) -> bytes:
    # Lone surrogates are encoded too, so that texts that differ only in them differ here.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
