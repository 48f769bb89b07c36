"""The files of the user's own memories: added, replaced, and moved away.

A file is checked first, and then written whole or not at all, with mode 0600. A forgotten memory is
moved to `.forgotten` in the same folder.
"""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from capd.adapters.file_texts import file_text
from capd.adapters.private_files import write_whole
from capd.core.errors import CapdError
from capd.core.memories.memory_format import OWN, SUFFIXES, MemoryFile, read_memory
from capd.core.memories.memory_names import LONGEST, is_name
from capd.core.redaction import general_redactor

FORGOTTEN = ".forgotten"
NEW = ".toml"


class NotStoredError(CapdError):
    """A memory was not written or not found; the text says why and what to do."""


class MemoryStore:
    """The folder of the user's own memories."""

    def __init__(self, folder: Path, secrets: Callable[[], Iterable[str]] = tuple) -> None:
        """Use the files in `folder`, which need not exist.

        `secrets` returns the secret values that are known at this moment: no memory may contain
        one.
        """
        self.folder = folder
        self._secrets = secrets

    def names(self) -> list[str]:
        """Return the names of all memories in the folder."""
        try:
            found = sorted(self.folder.iterdir())
        except OSError:
            return []
        return [f.stem for f in found if f.suffix in SUFFIXES and not f.name.startswith(".")]

    def text(self, name: str) -> tuple[Path, str]:
        """Return the file of the memory `name`, and its text.

        Raises:
            NotStoredError: no memory has this name, or it cannot be read.
        """
        file = self._file(name)
        try:
            return file, file_text(file)
        except OSError as error:
            raise NotStoredError(f"{file} cannot be read: {error.strerror}") from None

    def add(self, name: str, text: str) -> Path:
        """Write a new memory; return its file.

        Raises:
            NotStoredError: the name is invalid or taken, or the text is not a memory or contains a
                secret, or the file cannot be written.
        """
        if not is_name(name):
            raise NotStoredError(
                f"{name[:LONGEST]!r} is not a valid name: use at most {LONGEST} letters, digits, "
                "`.`, `_` and `-`"
            )
        if name in self.names():
            raise NotStoredError(f"there is a memory {name!r} already: capd memory edit {name}")
        file = self.folder / f"{name}{NEW}"
        self._write(file, text)
        return file

    def replace(self, name: str, text: str) -> Path:
        """Replace the text of an existing memory; return its file.

        Raises:
            NotStoredError: no memory has this name, or the text is not a memory or contains a
                secret, or the file cannot be written.
        """
        file = self._file(name)
        self._write(file, text)
        return file

    def forget(self, name: str) -> Path:
        """Move the memory `name` to the folder `.forgotten`, and return its new path.

        Raises:
            NotStoredError: no memory has this name, or its file cannot be moved.
        """
        file = self._file(name)
        folder = self.folder / FORGOTTEN
        kept = folder / f"{file.stem}.{int(time.time())}{file.suffix}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            file.rename(kept)
        except OSError as error:
            raise NotStoredError(f"{file} cannot be moved to {folder}: {error.strerror}") from None
        return kept

    def _file(self, name: str) -> Path:
        for suffix in SUFFIXES if is_name(name) else ():
            file = self.folder / f"{name}{suffix}"
            if file.exists():
                return file
        known = ", ".join(self.names()[:10])
        hint = f" There is {known}." if known else ""
        raise NotStoredError(
            f"there is no memory {name[:LONGEST]!r} of your own.{hint} What is of a tap is changed "
            "there"
        )

    def _write(self, file: Path, text: str) -> None:
        encoded = text.encode("utf-8", "replace")
        read = read_memory(OWN, MemoryFile(file.name, str(file), encoded))
        if read.memory is None:
            finding = read.findings[0]
            line = f"line {finding.line}: " if finding.line else ""
            reason = finding.reason.removeprefix("left out: ")
            raise NotStoredError(f"not written: {line}{reason}")
        if general_redactor(self._secrets())(text) != text:
            raise NotStoredError(
                "not written: it holds the value of a secret that capd keeps, and what is in a "
                "memory is told to models: take it out"
            )
        try:
            write_whole(file, encoded)
        except OSError as error:
            raise NotStoredError(f"{file} cannot be written: {error.strerror}") from None
