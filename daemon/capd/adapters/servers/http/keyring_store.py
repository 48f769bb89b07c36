"""Logins in the system's keyring; imported only where the extra `keyring` is installed."""

import contextlib

import keyring
import keyring.backend
import keyring.errors

from capd.adapters.servers.http.token_store import FileStore

_SERVICE = "capd"
_WORST_PRIORITY = 1


class KeyringStore:
    """The system's keyring; what it does not take goes into files."""

    def __init__(self, backend: keyring.backend.KeyringBackend, files: FileStore) -> None:
        self._backend = backend
        self._files = files

    def load(self, key: str) -> str | None:
        """Return what was saved."""
        try:
            text = self._backend.get_password(_SERVICE, key)
        except keyring.errors.KeyringError:
            text = None
        return self._files.load(key) if text is None else text

    def save(self, key: str, text: str) -> None:
        """Keep `text`, in place of what was there."""
        try:
            self._backend.set_password(_SERVICE, key, text)
        except keyring.errors.KeyringError:  # locked, and nobody there to open it
            self._files.save(key, text)
            self._forget(key)
        else:
            self._files.delete(key)

    def delete(self, key: str) -> None:
        """Forget what was saved, if anything was."""
        self._files.delete(key)
        self._forget(key)

    def _forget(self, key: str) -> None:
        with contextlib.suppress(keyring.errors.KeyringError):
            self._backend.delete_password(_SERVICE, key)


def keyring_store(files: FileStore) -> KeyringStore | None:
    """Return the system's keyring, if a real one is there."""
    backend = keyring.get_keyring()
    # Below 1 are those that fail always, keep nothing, or keep it in the clear.
    return KeyringStore(backend, files) if backend.priority >= _WORST_PRIORITY else None
