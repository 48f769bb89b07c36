"""State files: each contains one value of a known type, and is replaced atomically.

    read ──good──────────> its value
      ├──none────────────> None
      └──unusable────────> None; logged and, if `aside` is given, renamed, so that a person may
                           look at it and the next save starts a new file

The methods `load` and `save` are for the event loop. All others block.
"""

import errno
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import structlog
import trio

from capd.adapters.private_files import read_private, write_whole
from capd.adapters.regular_files import opened_regular, read_up_to
from capd_protos.codec import JsonCodec, MalformedError

T = TypeVar("T")
Document = TypeVar("Document", bound="Versioned")

log = structlog.get_logger()


class Codec(Protocol[T]):
    """Encodes and decodes the value of a file."""

    def decode(self, data: bytes, /) -> T:
        """Return the value in the bytes of a file.

        Raises:
            MalformedError: the bytes do not contain such a value.
        """
        ...

    def encode(self, message: T, /) -> bytes:
        """Return a value as the bytes of a file."""
        ...


class Versioned(Protocol):
    """A document that contains the version of its format."""

    @property
    def version(self) -> int:
        """The version of the format that the document is in."""
        ...


def of_version(known: int) -> Callable[[Versioned], str]:
    """Return a `refuse` function for `StateFile` that accepts only documents of version `known`."""

    def refuse(document: Versioned) -> str:
        is_known = document.version == known
        return "" if is_known else f"version {document.version}, this daemon knows {known}"

    return refuse


class StateFile(Generic[T]):
    """One file that contains one value of a known type."""

    def __init__(
        self,
        path: Path,
        codec: Codec[T],
        *,
        most_bytes: int,
        refuse: Callable[[T], str] = lambda _: "",
        aside: Path | None = None,
        is_private: bool = False,
        is_durable: bool = False,
    ) -> None:
        """Note the file at `path`, which is neither read nor created yet.

        `codec` encodes and decodes its value. `refuse` returns why a decoded value cannot be used;
        empty if it can. A file of more than `most_bytes` is unusable.

        An unusable file is renamed to `aside`. Without `aside` it stays until the next save, which
        is right for a cache. With `is_private`, a file that another user can write is unusable.
        With `is_durable`, a save survives a loss of power.
        """
        self.path = path
        self._codec = codec
        self._most_bytes = most_bytes
        self._refuse = refuse
        self._aside = aside
        self._is_private = is_private
        self._is_durable = is_durable
        self.problem = ""
        """Why the file was renamed to `aside`, in words for a person; empty if it was not."""
        # One write at a time, so that the later value is not overwritten by the earlier one.
        self._limiter = trio.CapacityLimiter(1)

    async def load(self) -> T | None:
        """Return the saved value; None if there is none, or it is unusable."""
        return await trio.to_thread.run_sync(self.read, limiter=self._limiter)

    async def save(self, value: T) -> bool:
        """Save `value`; return whether that worked. A failure is logged."""
        return await trio.to_thread.run_sync(self._save, value, limiter=self._limiter)

    def read(self) -> T | None:
        """Return the saved value; None if there is none, or it is unusable."""
        try:
            return self.decoded()
        except FileNotFoundError:
            return None
        except (OSError, MalformedError) as error:
            self._set_aside(getattr(error, "strerror", None) or str(error))
            return None

    def decoded(self) -> T:
        """Return the saved value without renaming an unusable file.

        Raises:
            OSError: there is no file, or it cannot be read.
            MalformedError: the content is damaged or cannot be used, or the file must be private
                and is not.
        """
        if self._is_private:
            data = read_private(self.path, self._most_bytes)
        else:
            with opened_regular(self.path, os.O_NOFOLLOW) as (descriptor, _):
                data = read_up_to(descriptor, self._most_bytes)
        value = self._codec.decode(data)
        if reason := self._refuse(value):
            raise MalformedError(reason)
        return value

    def write(self, value: T) -> None:
        """Save `value`.

        Raises:
            OSError: it cannot be written, or is too long to be read again; the old file stays.
        """
        data = self._codec.encode(value)
        if len(data) > self._most_bytes:
            raise OSError(errno.EFBIG, f"its {len(data)} bytes are more than {self._most_bytes}")
        write_whole(self.path, data, is_durable=self._is_durable)

    def _save(self, value: T) -> bool:
        try:
            self.write(value)
        except OSError as error:
            log.warning("state_not_saved", file=self.path.name, reason=str(error))
            return False
        return True

    def _set_aside(self, reason: str) -> None:
        if self._aside is None:
            log.warning("state_unreadable", file=self.path.name, reason=reason)
            return
        with suppress(OSError):
            self.path.replace(self._aside)
        self.problem = (
            f"{self.path} cannot be used: {reason}; it is set aside as {self._aside.name}, and what"
            " it had is collected anew"
        )
        log.warning("state_set_aside", file=self._aside.name, reason=reason)


class DocumentFile(ABC, Generic[Document, T]):
    """A state file of JSON in one known version, which contains one value.

    An unusable file is renamed to `NAME.bad`. A subclass converts the value into the document and
    back.
    """

    def __init__(
        self,
        path: Path,
        document: type[Document],
        *,
        version: int,
        most_bytes: int,
        is_private: bool = False,
    ) -> None:
        self._file: StateFile[Document] = StateFile(
            path,
            JsonCodec(document),
            most_bytes=most_bytes,
            refuse=of_version(version),
            aside=path.with_name(f"{path.name}.bad"),
            is_private=is_private,
        )

    @property
    def problem(self) -> str:
        """Why an earlier daemon's file cannot be used; empty if it can."""
        return self._file.problem

    async def load(self) -> T:
        """Return the saved value; an empty one if there is none, or if it is unusable."""
        return self._value(await self._file.load())

    async def save(self, value: T) -> bool:
        """Save `value`; return whether that worked. A failure is logged."""
        return await self._file.save(self._document(value))

    @abstractmethod
    def _value(self, document: Document | None) -> T:
        """Return the value that a document contains; the empty value for None."""

    @abstractmethod
    def _document(self, value: T) -> Document:
        """Return the document that is written to the file for `value`."""
