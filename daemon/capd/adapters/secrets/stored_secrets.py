"""The sources of secrets that clients did not send, in order of precedence.

    keyring, systemd credentials, secrets.env

capd asks the first two only for keys that a definition uses, and keeps the answers in memory until
`ask_again`. It reads `secrets.env` again when that has changed. An empty value counts as missing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import trio

from capd.adapters.secrets.secrets_file import SecretsFile
from capd.adapters.secrets.system_keyring import SystemKeyring
from capd.core.sessions.profiles import namespaced
from capd_protos.secret_places import CREDENTIALS, FILE, FILE_LIMIT_BYTES, FILE_NAME, KEYRING


def read_credentials(folder: str, keys: Iterable[str]) -> dict[str, str]:
    """Return the values of those `keys` that are in systemd's folder of credentials. Blocks."""
    if not folder:
        return {}
    found: dict[str, str] = {}
    for key in keys:
        try:
            with Path(folder, key).open("rb") as file:
                value = file.read(FILE_LIMIT_BYTES).decode()
        except (OSError, UnicodeDecodeError):
            continue
        # A newline at the end comes from an editor or `echo`, and is not part of the secret.
        if value := value.removesuffix("\n").removesuffix("\r"):
            found[key] = value
    return found


class StoredSecrets:
    """The stored secrets for all sessions of this user."""

    def __init__(
        self,
        config: Path,
        credentials: str,
        keyring: SystemKeyring | None = None,
        *,
        namespaces: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Create the sources: `config` is the folder of `secrets.env`.

        `credentials` is systemd's folder of credentials; empty if there is none. `namespaces`
        returns the namespaces of profiles, each of which may have its own value of a key.
        """
        self._namespaces = namespaces
        self._folder = credentials
        self._file = SecretsFile(config / FILE_NAME)
        self._keyring = keyring or SystemKeyring()
        self._from_keyring: dict[str, str] = {}
        self._from_folder: dict[str, str] = {}

    def __repr__(self) -> str:
        """Show no values."""
        return "StoredSecrets()"

    def values(self) -> Mapping[str, str]:
        """Return all known values by key, without asking a source that could take long."""
        return {**self._file.values(), **self._from_folder, **self._from_keyring}

    def sources(self) -> dict[str, str]:
        """Return the name of the source of each value, by the value's key."""
        return {
            **dict.fromkeys(self._file.values(), FILE),
            **dict.fromkeys(self._from_folder, CREDENTIALS),
            **dict.fromkeys(self._from_keyring, KEYRING),
        }

    def problems(self) -> list[str]:
        """Return the problems that a person has to solve."""
        self._file.values()
        return [self._file.problem] if self._file.problem else []

    def notes(self) -> list[str]:
        """Return why a source gives no values, in cases that may be intended."""
        return [f"keyring: {self._keyring.note}"] if self._keyring.note else []

    async def ask_again(self, keys: Collection[str]) -> None:
        """Ask the keyring and systemd for `keys` again; the values of other keys stay.

        The keyring has a limited time to answer.
        """
        keys = {*keys, *(namespaced(key, each) for each in self._namespaces() for key in keys)}
        found = await trio.to_thread.run_sync(read_credentials, self._folder, sorted(keys))
        self._from_folder = _renewed(self._from_folder, keys, found)
        found = await self._keyring.ask(sorted(keys))
        self._from_keyring = _renewed(self._from_keyring, keys, found)


def _renewed(
    known: Mapping[str, str], asked: Collection[str], found: Mapping[str, str]
) -> dict[str, str]:
    return {**{key: value for key, value in known.items() if key not in asked}, **found}
