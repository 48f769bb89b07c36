"""The store for the secrets of an import, and the values of keys that exist already."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from capd_client import stored_secrets
from capd_client.stored_secrets import SecretError
from capd_protos.secret_places import FILE_NAME


class SecretStore:
    """Saves secrets in the system's keyring, or in the file `secrets.env`.

    The file is used if `in_file` is set, or if there is no safe keyring. `str()` returns the name
    of the place for a person.
    """

    def __init__(self, config: str, *, in_file: bool) -> None:
        self._file = Path(config, FILE_NAME)
        self._in_file = in_file or not stored_secrets.has_keyring()

    def __str__(self) -> str:
        return str(self._file) if self._in_file else "the keyring"

    def keep(self, key: str, value: str) -> None:
        """Save `value` under `key`, in the keyring or in the file.

        Raises:
            SecretError: it cannot be saved.
        """
        if self._in_file:
            stored_secrets.keep_in_file(self._file, key, value)
        else:
            stored_secrets.keep_in_keyring(key, value)

    def remove(self, key: str) -> None:
        """Remove the value that was saved under `key`.

        Raises:
            SecretError: it cannot be removed.
        """
        if self._in_file:
            stored_secrets.remove_from_file(self._file, key)
        else:
            stored_secrets.remove_from_keyring(key)


class KnownValues(Mapping[str, str]):
    """The value of each key, from the first place where a daemon would find it.

    The places are the environment, the keyring and `secrets.env`. Iteration leaves out keys that
    only the keyring has, because a keyring cannot list its keys.
    """

    def __init__(self, env: Mapping[str, str], config: str) -> None:
        """Read the file `secrets.env` in the folder `config`; `env` is the environment.

        The keyring is asked once for each key.

        Raises:
            SecretError: others can read the file, so no secret may be added to it.
        """
        self._env = env
        self._file = stored_secrets.in_file(Path(config, FILE_NAME))
        self._keyring: dict[str, str | None] = {}

    def __getitem__(self, key: str) -> str:
        value = self._env.get(key) or self._in_keyring(key) or self._file.get(key)
        if not value:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return (key for key, value in {**self._file, **self._env}.items() if value or key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def stored_keys(self) -> list[str]:
        """Return the keys in `secrets.env`."""
        return list(self._file)

    def all_of(self, key: str) -> list[str]:
        """Return every value that `key` has in any of the places."""
        values = (self._env.get(key), self._in_keyring(key), self._file.get(key))
        return list(dict.fromkeys(value for value in values if value))

    def is_stored(self, key: str, value: str) -> bool:
        """Tell whether the keyring or the file has this value under `key`."""
        return value in (self._in_keyring(key), self._file.get(key))

    def _in_keyring(self, key: str) -> str | None:
        if key not in self._keyring:
            try:
                self._keyring[key] = stored_secrets.in_keyring(key)
            except SecretError:
                # Whether the keyring works is checked and reported when a secret is written to it.
                self._keyring[key] = None
        return self._keyring[key]
