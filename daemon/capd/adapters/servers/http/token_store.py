"""Saves logins: in the system's keyring if there is one, otherwise in private files.

The key of an entry is a hash, so that it does not reveal the server.
"""

import contextlib
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from capd.adapters.private_files import write_whole
from capd_protos.places import make_folders

if TYPE_CHECKING:
    from keyring.backend import KeyringBackend

_SERVICE = "capd"
_WORST_PRIORITY = 1


class TokenStore(Protocol):
    """A store of logins. It blocks, so use it in a thread."""

    def load(self, key: str) -> str | None:
        """Return the saved text of the login `key`; None if there is none.

        Raises:
            OSError: it cannot be read at the moment.
        """

    def save(self, key: str, text: str) -> None:
        """Save the text of the login `key`, replacing an earlier one.

        Raises:
            OSError: it cannot be saved.
        """

    def delete(self, key: str) -> None:
        """Delete the saved text of the login `key`, if there is one."""


class FileStore:
    """Saves logins in files of mode 0600 in a folder of mode 0700, each replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: str) -> str | None:
        """Return the saved text of the login `key`; None if there is none."""
        try:
            # Bytes that are not UTF-8 are replaced; decoding the record then reports the damage.
            return self._path(key).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def save(self, key: str, text: str) -> None:
        """Save the text of the login `key`, replacing an earlier one."""
        make_folders(self._folder)
        self._folder.chmod(0o700)
        write_whole(self._path(key), text.encode(), is_durable=True, has_other_writers=True)

    def delete(self, key: str) -> None:
        """Delete the saved text of the login `key`, if there is one."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"


class KeyringStore:
    """Saves logins in the system's keyring.

    An entry that the keyring refuses is saved in a file.
    """

    def __init__(self, backend: "KeyringBackend", files: FileStore) -> None:
        from keyring.errors import KeyringError  # noqa: PLC0415 - the extra `keyring`

        self._error = KeyringError
        self._backend = backend
        self._files = files

    def load(self, key: str) -> str | None:
        """Return the saved text of the login `key`; None if there is none.

        Raises:
            OSError: the keyring is locked, or does not work.
        """
        is_readable, text = True, None
        try:
            text = self._backend.get_password(_SERVICE, key)
        except self._error:
            is_readable = False
        if text is None:
            text = self._files.load(key)
        if text is None and not is_readable:
            raise OSError(errno.EAGAIN, "the keyring is locked or does not work")
        return text

    def save(self, key: str, text: str) -> None:
        """Save the text of the login `key`, replacing an earlier one."""
        try:
            self._backend.set_password(_SERVICE, key, text)
        except self._error:  # locked, and nobody there to open it
            self._files.save(key, text)
            self._forget(key)
        else:
            self._files.delete(key)

    def delete(self, key: str) -> None:
        """Delete the saved text of the login `key`, if there is one."""
        self._files.delete(key)
        self._forget(key)

    def _forget(self, key: str) -> None:
        with contextlib.suppress(self._error):
            self._backend.delete_password(_SERVICE, key)


def best_store(folder: Path) -> TokenStore:
    """Return the system's keyring if it works, otherwise a store of files in `folder`."""
    files = FileStore(folder)
    try:
        import keyring  # noqa: PLC0415 - an extra
    except ImportError:
        return files
    backend = keyring.get_keyring()
    # Backends below 1 always fail, store nothing, or store texts unencrypted.
    return KeyringStore(backend, files) if backend.priority >= _WORST_PRIORITY else files
