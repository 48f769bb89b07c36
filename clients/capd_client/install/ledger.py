"""The record of the files that `capd install` changed, with backups of the originals.

    <state>/install/CLIENT.json                      the entries of one client
    <state>/install/CLIENT.FILE.DIGEST.backup        an original file

Backups may contain a user's tokens, so the folder has mode 0700 and each file 0600.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from capd_client.install import InstallError
from capd_client.install.files import PRIVATE, read, replace
from capd_protos.places import make_folders

_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class Entry:
    """The record of one changed file."""

    left: str
    """The digest of the content that capd wrote; empty if it is not known."""
    backup: str
    """The name of the backup; empty if there was no file before."""


def digest(data: bytes | None) -> str:
    """Return the SHA-256 of `data` in hexadecimal; empty for None, which means no file."""
    return "" if data is None else hashlib.sha256(data).hexdigest()


class Ledger:
    """The record of the files of one client that were changed; `state` is capd's state folder.

    Raises:
        InstallError: the file with the entries is damaged, or a backup is gone.
    """

    def __init__(self, state: Path, client: str) -> None:
        self._client = client
        self._folder = state / "install"
        self._path = self._folder / f"{client}.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that keeps two commands from changing clients' files at the same time."""
        make_folders(self._folder)
        with (self._folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def entries(self) -> dict[Path, Entry]:
        """Return all entries by the path of the changed file."""
        data = read(self._path)
        if data is None:
            return {}
        try:
            files = json.loads(data)["files"]
            return {Path(path): _checked(path, Entry(**each)) for path, each in files.items()}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise InstallError(
                f"{self._path} is damaged\n"
                f"Move it away, then try again. The original files are in {self._folder}."
            ) from None

    def original(self, entry: Entry) -> bytes | None:
        """Return the content of the file before capd's change; None if there was no file."""
        if not entry.backup:
            return None
        data = read(self._folder / entry.backup)
        if data is None:
            # Without the record, capd's own part is removed and the rest of the file stays.
            raise InstallError(
                f"the backup {self._folder / entry.backup} is gone\n"
                f"Put it back, or move {self._path} away; then try again."
            )
        return data

    def note(self, path: Path, *, original: bytes | None, left: bytes | None) -> Path | None:
        """Save `original` as a backup, and record that capd leaves the content `left` at `path`.

        Return the backup's path; None if `original` is None, so that there is nothing to save.
        """
        entries = self.entries()
        former = entries.get(path)
        backup = ""
        if original is not None:
            # The name contains the client: another's file may have the same name and content.
            name = f"{self._client}.{path.name.lstrip('.')}"
            backup = f"{name}.{digest(original)[:12]}.backup"
            replace(self._folder / backup, original, PRIVATE)
        entries[path] = Entry(digest(left), backup)
        self._store(entries)
        if former is not None:
            self._discard(former.backup, entries)
        return self._folder / backup if backup else None

    def forget(self, path: Path, *, keep_backup: bool) -> Path | None:
        """Remove the entry of `path` from the record.

        With `keep_backup` the backup stays, and its path is returned; otherwise the result is None.
        """
        entries = self.entries()
        entry = entries.pop(path, None)
        self._store(entries)
        if entry is None or not entry.backup:
            return None
        if keep_backup:
            return self._folder / entry.backup
        self._discard(entry.backup, entries)
        return None

    def hand_over(self, path: Path, to: "Ledger") -> None:
        """Move the entry of `path` to the ledger of another client, which shares the file."""
        entry = self.entries().get(path)
        if entry is not None:
            self.forget(path, keep_backup=to.adopt(path, entry))

    def adopt(self, path: Path, entry: Entry) -> bool:
        """Take over another client's entry for `path`; return False if there is one already."""
        entries = self.entries()
        if path in entries:
            return False
        self._store({**entries, path: entry})
        return True

    def _discard(self, backup: str, entries: dict[Path, Entry]) -> None:
        """Remove a backup that no entry in `entries` refers to."""
        if backup and backup not in {each.backup for each in entries.values()}:
            (self._folder / backup).unlink(missing_ok=True)

    def _store(self, entries: dict[Path, Entry]) -> None:
        files = {
            str(path): {"left": each.left, "backup": each.backup} for path, each in entries.items()
        }
        document = json.dumps({"schema": 1, "files": files}, indent=2) + "\n"
        replace(self._path, document.encode(), PRIVATE)


def _checked(path: str, entry: Entry) -> Entry:
    """Return `entry`, the record for `path`, if it is valid and its backup is in capd's folder.

    Raises:
        ValueError, TypeError, AttributeError: a member has a wrong type or an unsafe value.
    """
    # A null byte is a ValueError in every system call, and ".." leads outside the folder.
    is_bare = Path(entry.backup).name == entry.backup and entry.backup.endswith(".backup")
    is_bare = is_bare and len(entry.backup) <= _LONGEST_NAME
    if (entry.backup and not is_bare) or "\0" in path + entry.left + entry.backup:
        raise ValueError(path)
    return entry
