"""Saves logins.

In the system's keyring if there is one, otherwise in files only the owner can read.

A key is a hash, so that the name of an entry reveals nothing.
"""

from pathlib import Path
from typing import Protocol

from capd.adapters.state_file import write_whole


class TokenStore(Protocol):
    """A store of logins. It blocks, so use it in a thread."""

    def load(self, key: str) -> str | None:
        """Return the saved text; None if there is none."""

    def save(self, key: str, text: str) -> None:
        """Save `text`, replacing an earlier one."""

    def delete(self, key: str) -> None:
        """Delete the saved text, if there is one."""


class FileStore:
    """Files of mode 0600 in a folder of mode 0700, each replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> str | None:
        """Return the saved text; None if there is none."""
        try:
            # What is not UTF-8 is none of our JSON either: whoever decodes it says so.
            return self._path(key).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def save(self, key: str, text: str) -> None:
        """Save `text`, replacing an earlier one."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        write_whole(self._path(key), text.encode(), is_durable=True, has_other_writers=True)

    def delete(self, key: str) -> None:
        """Delete the saved text, if there is one."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


def best_store(folder: Path) -> TokenStore:
    """Return the system's keyring if it works, otherwise a store of files in `folder`."""
    files = FileStore(folder)
    try:
        from capd.adapters.servers.http.keyring_store import keyring_store  # noqa: PLC0415
    except ImportError:
        # The extra `keyring` is not installed.
        return files
    return keyring_store(files) or files
