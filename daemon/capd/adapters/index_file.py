"""The file capability-index.yaml: read when it changes, locked and replaced as a whole.

The file describes each installed capability in few words. A person may change values in it.
"""

import fcntl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capd.adapters.index_text import (
    NAME,
    Content,
    IndexFileError,
    loaded,
    own_values,
    revised,
    rewritten,
)
from capd.adapters.private_files import write_whole
from capd.core.index import document
from capd_protos.places import make_folders

LOCKED_FOR = 5.0
"""Seconds to wait for another writer."""
MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How many capabilities a write changed, and how many values of a person it kept."""

    changed: int
    is_same: bool
    """Whether the write left the file as it was."""
    kept: int


@dataclass(slots=True)
class IndexFile:
    """Reads the user's file `capability-index.yaml` for the values of a person, and updates it."""

    path: Path
    _seen: tuple[int, int, int] | None = None
    _own: dict[str, document.Overrides] = field(default_factory=dict)

    def overrides(self) -> dict[str, document.Overrides]:
        """Return the values that a person has set, by capability.

        The file is read if it has changed.

        Raises:
            IndexFileError: the file exists and cannot be read.
        """
        stamp = self._stamp()
        if stamp != self._seen:
            self._own = {} if stamp is None else own_values(loaded(self._text()))
            self._seen = stamp
        return self._own

    @property
    def is_as_it_was(self) -> bool:
        """Whether the file exists and has not changed since this object last read or wrote it."""
        return self._seen is not None and self._stamp() == self._seen

    def write(self, content: Content) -> WriteOutcome:
        """Update the file to `content`, as a whole or not at all.

        Raises:
            IndexFileError: it cannot be read or written, or another writer has it.
        """
        try:
            make_folders(self.path.parent)
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                kept = sum(map(len, self.overrides().values()))
                old = self._text() if self._seen is not None else ""
                text, changed = rewritten(old, content)
                if text != old:
                    self._store(text)
                    # This write keeps a person's values, so the cached overrides stay valid.
                    self._seen = self._stamp()
                return WriteOutcome(changed, text == old, kept)
        except OSError as error:
            raise IndexFileError(f"{self.path} cannot be written: {error}") from error

    def revise(self, words: Mapping[str, Mapping[str, Any]]) -> int:
        """Set texts of capabilities as if a person had edited the file.

        `words` has the new values of each capability's keys, by `tap/name`. Return how many
        capabilities changed.

        Raises:
            IndexFileError: as for `write`.
        """
        try:
            with _locked(self.path.with_name(f".{self.path.name}.lock")):
                self.overrides()
                old = self._text() if self._seen is not None else ""
                text, changed = revised(old, words)
                if text != old:
                    self._store(text)
                    self.overrides()
                return changed
        except OSError as error:
            raise IndexFileError(f"{self.path} cannot be written: {error}") from error

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IndexFileError(
                f"{self.path} cannot be read: {error.strerror or error}"
            ) from error
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _text(self) -> str:
        try:
            with self.path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise IndexFileError(f"{self.path} is over {MOST_BYTES >> 20} MiB: move it away")
            return data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise IndexFileError(f"{self.path} cannot be read: {error}") from error

    def _store(self, text: str) -> None:
        write_whole(
            self.path,
            text.encode(),
            is_durable=True,
            has_other_writers=True,
            # The new file replaces the old one only if it can be parsed again.
            check=lambda temporary: loaded(temporary.read_bytes().decode()),
        )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as lock:
        deadline = time.monotonic() + LOCKED_FOR
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() >= deadline:
                raise IndexFileError(f"{path.parent / NAME} is being written by another program")
            time.sleep(0.05)
        yield
