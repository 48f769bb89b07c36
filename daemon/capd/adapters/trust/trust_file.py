"""The file of what a person trusts, `trust.json`: mode 0600, replaced as a whole.

An *agreement* is the record that a person trusts one server of a project, by its digest.

If the file is damaged, a link, belongs to another user or is open to others, nothing is trusted.
The next time that trust is given or withdrawn, such a file is renamed, and a new one is started.

If the file cannot be read at the moment, for example because the daemon has no free descriptor,
nothing is trusted until it can be read, and nothing is written: its agreements would be lost.
"""

import errno
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from capd.adapters.private_files import write_whole
from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.errors import CapdError
from capd.core.trust.startable import Agreement

MOST_BYTES = 16 << 20

_NOT_A_FILE = frozenset({errno.ELOOP, errno.EISDIR, errno.EINVAL, errno.ENXIO, errno.EFBIG})
"""The errors of `opened_regular` and `read_up_to` that say what is in the file's place. After all
other errors, the file may be good."""

Agreements = dict[str, dict[str, Agreement]]
"""By project, then by digest."""


class NotReadError(CapdError):
    """The file cannot be read, and may have agreements; the text says why."""


class _Entry(msgspec.Struct):
    name: str
    digest: str
    parts: dict[str, str] = {}


class _File(msgspec.Struct):
    checksum: str
    projects: dict[str, list[_Entry]]


@dataclass(slots=True)
class Trusted:
    """All agreements in the file, by project."""

    projects: Agreements = field(default_factory=dict)
    problem: str = ""
    """Why nothing is trusted, if the file is unusable."""
    unread: OSError | None = None
    """Why the file could not be read, if it may be good; `problem` says so too."""

    def of(self, project: str) -> Mapping[str, Agreement]:
        """Return the agreements for a project, by digest."""
        return self.projects.get(project, {})


class TrustFile:
    """Reads and writes the file of agreements. It caches nothing, so what it returns is current."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_to_change(self) -> Trusted:
        """Return all agreements, which will be written with a change.

        Raises:
            NotReadError: the file cannot be read, and may have agreements.
        """
        trusted = self.read()
        if trusted.unread is not None:
            raise NotReadError(f"{self.path} cannot be read: {trusted.unread.strerror}")
        return trusted

    def read(self) -> Trusted:
        """Return all agreements."""
        try:
            with opened_regular(self.path, os.O_NOFOLLOW) as (descriptor, status):
                if status.st_uid != os.getuid():
                    return self._nothing(f"it belongs to user {status.st_uid}")
                if status.st_mode & 0o077:
                    mode = status.st_mode & 0o777
                    return self._nothing(f"its mode is {mode:04o}, so that others have access")
                data = read_up_to(descriptor, MOST_BYTES)
        except FileNotFoundError:
            return Trusted()
        except OSError as error:
            if error.errno not in _NOT_A_FILE:
                text = f"{self.path} cannot be read: {error.strerror}; no project is trusted"
                return Trusted(problem=text, unread=error)
            why = "it is a link" if error.errno == errno.ELOOP else error.strerror
            return self._nothing(str(why))
        try:
            read = msgspec.json.decode(data, type=_File)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._nothing("it is damaged")
        if read.checksum != _checksum(read.projects):
            return self._nothing("it is damaged")
        return Trusted(
            {
                project: {e.digest: Agreement(e.name, e.digest, e.parts) for e in entries}
                for project, entries in read.projects.items()
            }
        )

    def write(self, agreements: Mapping[str, Mapping[str, Agreement]]) -> None:
        """Replace the agreements in the file by `agreements`.

        Raises:
            OSError: it cannot be written; the old file stays.
            NotReadError: the old file cannot be read, and stays.
        """
        if self.read_to_change().problem:
            aside = self.path.with_name(f"{self.path.name}.damaged-{int(time.time())}")
            self.path.replace(aside)
        projects = {
            project: [_Entry(a.name, a.digest, dict(a.parts)) for a in named.values()]
            for project, named in agreements.items()
            if named
        }
        data = msgspec.json.encode(_File(_checksum(projects), projects))
        write_whole(self.path, data, is_durable=True, has_other_writers=True)

    def _nothing(self, why: str) -> Trusted:
        text = f"{self.path} is not used: {why}; no project is trusted until capd trust is run"
        return Trusted(problem=text)


def _checksum(projects: Mapping[str, list[_Entry]]) -> str:
    return hashlib.sha256(msgspec.json.encode(projects, order="sorted")).hexdigest()
