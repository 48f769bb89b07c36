"""Memories on disk: the files of a tap's `memories`, or of the user's folder. No rule is here.

What cannot be read is a finding, and never a reason to be without the others.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from capd.adapters.file_texts import file_name
from capd.adapters.regular_files import opened_regular
from capd.core.memories.memory_format import (
    LARGEST_BYTES,
    SUFFIXES,
    MemoryFile,
    MemoryRead,
    read_memory,
)
from capd_protos.types import Finding, TapName

MEMORIES = "memories"
MOST_MEMORIES = 1000
"""Of one folder; each costs a parse at every load."""
MOST_ENTRIES = 10_000


def read_memories(tap: TapName, folder: Path) -> tuple[tuple[MemoryRead, ...], tuple[Finding, ...]]:
    """Return the memories in `folder` by file, and what is wrong with the folder."""
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
    return tuple(_once_each(_reads(tap, folder, wanted[:MOST_MEMORIES]))), tuple(findings)


def _is_memory(name: str) -> bool:
    return name.endswith(SUFFIXES) and not name.startswith(".") and name.lower() != "readme.md"


def _reads(tap: TapName, folder: Path, names: list[str]) -> Iterator[MemoryRead]:
    for name in names:
        shown = f"{MEMORIES}/{file_name(Path(name))}"
        try:
            with opened_regular(folder / name) as (descriptor, _):
                content = os.read(descriptor, LARGEST_BYTES + 1)
        except FileNotFoundError:
            continue
        except OSError as error:
            finding = Finding(shown, 0, f"left out: {error.strerror or error}")
            yield MemoryRead(shown, None, (finding,))
            continue
        yield read_memory(tap, MemoryFile(shown, file_name(folder / name), content))


def _once_each(reads: Iterator[MemoryRead]) -> Iterator[MemoryRead]:
    """Leave out what has the name of another: `a.md` beside `a.toml`."""
    known: dict[str, str] = {}
    for read in reads:
        first = known.setdefault(read.memory.name, read.path) if read.memory else read.path
        if first == read.path:
            yield read
            continue
        finding = Finding(read.path, 1, f"left out: {first} has its name already")
        yield MemoryRead(read.path, None, (*read.findings, finding), read.revision)
