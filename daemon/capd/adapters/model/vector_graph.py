"""Finds the nearest of very many vectors without comparing all of them: usearch's graph, in a file.

    question ──graph──> the nearest NEAREST rows ──┐
    rows that share words with the question ───────┴──> compared exactly ──> cosines, else 0

The graph (HNSW) stores each number of a vector in one byte, which is enough to find candidates.
Their cosines are then computed from float16 vectors, which are stored beside the graph. Both parts
are in one file, which is mapped: only the pages that questions touch take memory.

usearch is an extra (`capd[many-tools]`). Without it, at most `core/tools/tool_search.MOST_TOOLS`
tools are indexed. For so few tools this module is not used: every tool is compared
(`core/tools/vector_search`). docs/design/tool-search.md has the measurements.

The file is a cache. It is built again if the texts, their order, the model or usearch changed, if
its checksum is wrong, or if another user could have written it.

    magic 8 | version u32 | dimensions u32 | rows u64 | bytes of the graph u64
    | sha256 of what it was made from | sha256 of all of this and of what follows | zeros up to 128
    | rows x dimensions x f16 | usearch's graph

All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import importlib.util
import mmap
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import structlog

from capd.adapters.model.vector_cache import MAX_ENTRIES
from capd.adapters.private_files import opened_private, write_whole
from capd.core.tools.tool_search import MOST_TOOLS as MOST_TOOLS_COMPARED
from capd_protos.codec import MalformedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from usearch.index import Index

    Vectors = npt.NDArray[np.float32]
    Halves = npt.NDArray[np.float16]

MOST_TOOLS = MAX_ENTRIES
"""The most tools that are indexed with the extra: as many as the cache of vectors holds. Their
words, not their vectors, are what takes memory."""
NEAREST = 512
"""Rows that a question takes from the graph, to be compared exactly. Far more than are shown,
because a session may not use some of the best ones, and because words count as well."""

CONNECTIVITY = 16
EFFORT = 64
"""usearch's `connectivity` and `expansion_add`: neighbours of each row, and candidates looked at
when a row is added. 128 candidates take twice the time and gain nothing, as questions look at 512.
"""

_MAGIC = b"capdnear"
_VERSION = 1
_HEAD = struct.Struct("<8s2I2Q32s")
_DIGEST_BYTES = 32
_PAYLOAD_AT = 128
_MOST_BYTES = 4 << 30
_PART_BYTES = 1 << 20
_ADDED_TOGETHER = 4096

log = structlog.get_logger(actor="finder")


def is_installed() -> bool:
    """Tell whether the extra with usearch is installed. Nothing of it is imported."""
    try:
        return importlib.util.find_spec("usearch") is not None
    except (ImportError, ValueError):
        return False


def most_tools() -> int:
    """Return how many tools can be indexed: more with the extra than without it."""
    return MOST_TOOLS if is_installed() else MOST_TOOLS_COMPARED


class VectorGraph:
    """The vectors of one list of tools, and the graph that finds near ones."""

    def __init__(self, vectors: Halves, graph: Index, memory: object = None) -> None:
        """Use `vectors`, one row for each tool, and `graph`, which finds near rows.

        `memory` is the mapped file that contains both, and has to stay open; None without a file.
        """
        self._vectors = vectors
        self._graph = graph
        self._memory = memory

    @property
    def rows(self) -> int:
        """The number of tools."""
        return len(self._vectors)

    @property
    def is_exact(self) -> bool:
        """Whether every row is compared. Always False: only the most promising rows are."""
        return False

    def cosines(self, vector: Vectors, beside: Sequence[int] = ()) -> Vectors:
        """Return the cosine of each row with `vector`; 0 for a row that was not compared.

        The compared rows are the `NEAREST` rows that the graph finds, and the rows with the indexes
        `beside`.
        """
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without searches never pays

        near = self._graph.search(vector, min(NEAREST, self.rows), threads=1).keys
        compared = np.unique(np.concatenate([near.astype(np.int64), np.array(beside, np.int64)]))
        cosines = np.zeros(self.rows, np.float32)
        cosines[compared] = self._vectors[compared].astype(np.float32) @ vector
        return cosines


def vector_graph(
    path: Path,
    model_key: str,
    texts: Sequence[str],
    vectors: Callable[[], Vectors],
    *,
    threads: int = 1,
) -> VectorGraph:
    """Return the graph over `texts`: from the file `path` if that fits, else built and saved there.

    `model_key` identifies the model. `vectors()` returns the unit vectors of the texts, one row for
    each; it is called only if the graph has to be built. Blocks: up to a second to check a file,
    and minutes to build. The graph is built in `threads` threads; with one, the other cores stay
    free for the user's own work.

    Raises:
        ImportError: usearch is not installed, or cannot be loaded.
    """
    key = _key(model_key, texts)
    try:
        found = _opened(path, key)
    except FileNotFoundError:
        pass
    except (OSError, MalformedError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.info("vector_graph_built_again", file=str(path), reason=reason)
    else:
        if found.rows == len(texts):
            return found
    rows = vectors()
    return _built(path, key, rows, threads)


def _key(model_key: str, texts: Sequence[str]) -> bytes:
    """Return a hash of everything that the graph is made from: the model, the texts and usearch."""
    # Imported here: the module imports zipfile, which a start does not need.
    from importlib.metadata import version  # noqa: PLC0415

    made_with = f"{version('usearch')} {CONNECTIVITY} {EFFORT} {model_key}"
    key = hashlib.sha256(hashlib.sha256(made_with.encode()).digest())
    for text in texts:
        # Lone surrogates are hashed too, as in the cache of vectors.
        key.update(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
    return key.digest()


def _empty(dimensions: int) -> Index:
    from usearch.index import Index  # noqa: PLC0415 - an extra, and 50 ms

    return Index(
        ndim=dimensions,
        metric="cos",
        dtype="i8",
        connectivity=CONNECTIVITY,
        expansion_add=EFFORT,
        expansion_search=NEAREST,
        enable_key_lookups=False,
    )


def _built(path: Path, key: bytes, rows: Vectors, threads: int) -> VectorGraph:
    import numpy as np  # noqa: PLC0415 - as above

    graph = _empty(rows.shape[1])
    for at in range(0, len(rows), _ADDED_TOGETHER):
        part = rows[at : at + _ADDED_TOGETHER]
        graph.add(np.arange(at, at + len(part)), np.asarray(part, np.float32), threads=threads)
    halves = np.ascontiguousarray(rows, "<f2")
    try:
        _save(path, key, halves, cast("bytes", graph.save()))
        return _opened(path, key)
    except (OSError, MalformedError) as error:
        # The graph was not saved, for example on a full disk. The next start builds it again.
        reason = error.strerror if isinstance(error, OSError) else str(error)
        log.warning("vector_graph_not_saved", file=str(path), reason=reason)
        return VectorGraph(halves, graph)


def _save(path: Path, key: bytes, halves: Halves, graph: bytes) -> None:
    rows, dimensions = halves.shape
    head = _HEAD.pack(_MAGIC, _VERSION, dimensions, rows, len(graph), key)

    def payload() -> Iterator[bytes]:
        for at in range(0, rows, _ADDED_TOGETHER):
            yield halves[at : at + _ADDED_TOGETHER].tobytes()
        yield graph

    checksum = hashlib.sha256(head)
    for part in payload():
        checksum.update(part)
    start = (head + checksum.digest()).ljust(_PAYLOAD_AT, b"\0")

    def content() -> Iterator[bytes]:
        yield start
        yield from payload()

    write_whole(path, content())


def _opened(path: Path, key: bytes) -> VectorGraph:
    """Map the file at `path`, and return the graph in it.

    The file has to be complete, and to contain `key`, the hash of what it was made from. usearch
    trusts what it maps, so every byte is checked first.

    Raises:
        MalformedError: the file does not fit, or is damaged.
        OSError: it cannot be read.
    """
    import numpy as np  # noqa: PLC0415 - as above

    with opened_private(path, _MOST_BYTES) as file:
        start = file.read(_PAYLOAD_AT)
        size = os.fstat(file.fileno()).st_size
        if len(start) < _PAYLOAD_AT:
            raise MalformedError("it is truncated")
        magic, version, dimensions, rows, graph_bytes, made_from = _HEAD.unpack_from(start)
        if (magic, version) != (_MAGIC, _VERSION):
            raise MalformedError("it has another format")
        if made_from != key:
            raise MalformedError("it was made from other tools")
        graph_at = _PAYLOAD_AT + rows * dimensions * 2
        if size != graph_at + graph_bytes:
            raise MalformedError("its length does not fit its parts")
        checksum = hashlib.sha256(start[: _HEAD.size])
        # Read instead of mapped, so that the checksum's pages do not count as the process's.
        while part := file.read(_PART_BYTES):
            checksum.update(part)
        if checksum.digest() != start[_HEAD.size : _HEAD.size + _DIGEST_BYTES]:
            raise MalformedError("its checksum is wrong")
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    halves = np.frombuffer(content, "<f2", rows * dimensions, _PAYLOAD_AT)
    graph = _empty(dimensions)
    part_of: Any = memoryview(content)[graph_at:]
    graph.view(part_of)
    return VectorGraph(halves.reshape(rows, dimensions), graph, content)
