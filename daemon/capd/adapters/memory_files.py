"""Reads memories from disk: the files of a tap's `memories`, or of the user's folder.

An unreadable file is reported as a finding, and the others are read. `core/memories` has the rules.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from capd.adapters.file_texts import file_name
from capd.adapters.parsing.jobs import DIRECT, Reader, ReadMemory
from capd.adapters.regular_files import opened_inside, opened_regular
from capd.core.memories.memory_format import (
    LARGEST_BYTES,
    SUFFIXES,
    MemoryFile,
    MemoryRead,
)
from capd_protos.types import Finding, TapName

MEMORIES = "memories"
MOST_MEMORIES = 1000
"""The most memories that are read from one folder, because each is parsed at every load."""
MOST_ENTRIES = 10_000
MOST_BYTES = 2 << 20
"""The most bytes of memories in one folder, because they stay in the daemon's memory."""


def read_memories(
    tap: TapName, folder: Path, reader: Reader = DIRECT, *, root: Path | None = None
) -> tuple[tuple[MemoryRead, ...], tuple[Finding, ...]]:
    """Return what was read from each memory's file in `folder`, and the problems of the folder.

    `tap` is the tap that they belong to, and `reader` parses them. Links that lead out of `root`
    are not followed, because a memory's text is given to models. If `root` is None, all links are
    followed.
    """
    findings: list[Finding] = []
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES))
    except (FileNotFoundError, NotADirectoryError):
        return (), ()
    except OSError as error:
        return (), (Finding(MEMORIES, 0, f"no memory is read: {error.strerror}"),)
    wanted = [name for name in names if _is_memory(name)]
    if len(wanted) > MOST_MEMORIES:
        reason = f"more than {MOST_MEMORIES} memories: those from {wanted[MOST_MEMORIES]!r} on "
        findings.append(Finding(MEMORIES, 0, f"{reason}are left out"))
    reads = _reads(tap, folder, wanted[:MOST_MEMORIES], reader, root)
    found = tuple(_once_each(reads))
    return found, tuple(findings)


def _is_memory(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".") and name.lower() != "readme.md"


def _reads(
    tap: TapName, folder: Path, names: list[str], reader: Reader, root: Path | None
) -> Iterator[MemoryRead]:
    left_bytes = MOST_BYTES
    for name in names:
        shown = f"{MEMORIES}/{file_name(Path(name))}"
        try:
            content = _content(folder / name, root)
        except FileNotFoundError:
            continue
        except OSError as error:
            finding = Finding(shown, 0, f"left out: {error.strerror or error}")
            yield MemoryRead(shown, None, (finding,))
            continue
        left_bytes -= len(content)
        reason = ""
        if left_bytes < 0:
            reason = f"the memories up to here have more than {MOST_BYTES >> 20} MiB"
        elif reader.is_spent:
            reason = "what is before takes too long to read"
        if reason:
            finding = Finding(shown, 0, f"it and all after it are left out: {reason}")
            yield MemoryRead(shown, None, (finding,))
            return
        yield reader.read(ReadMemory(tap, MemoryFile(shown, file_name(folder / name), content)))


def _content(file: Path, root: Path | None) -> bytes:
    if root is None:
        with opened_regular(file) as (descriptor, _):
            return os.read(descriptor, LARGEST_BYTES + 1)
    with opened_inside(root, file) as descriptor:
        return os.read(descriptor, LARGEST_BYTES + 1)


def _once_each(reads: Iterator[MemoryRead]) -> Iterator[MemoryRead]:
    """Yield `reads`. A memory with the name of an earlier memory is replaced by a finding.

    For example, `a.md` and `a.toml` have the same name.
    """
    known: dict[str, str] = {}
    for read in reads:
        first = known.setdefault(read.memory.name, read.path) if read.memory else read.path
        if first == read.path:
            yield read
            continue
        finding = Finding(read.path, 1, f"left out: {first} has its name already")
        yield MemoryRead(read.path, None, (*read.findings, finding), read.revision)
