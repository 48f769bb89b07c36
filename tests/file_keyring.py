"""A keyring in a file for daemons and commands of tests (PYTHON_KEYRING_BACKEND)."""

import json
import os
from pathlib import Path
from typing import Any

from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError


class FileKeyring(KeyringBackend):
    """Keeps what it is given in $CAPD_TEST_KEYRING, and a journal of what was asked for beside."""

    priority: Any = 5

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it is keyring's
        self._path = Path(os.environ["CAPD_TEST_KEYRING"])

    def get_password(self, service: str, username: str) -> str | None:
        with self._path.with_suffix(".asked").open("a") as journal:
            journal.write(f"{service} {username}\n")
        return self._entries().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._path.write_text(json.dumps({**self._entries(), f"{service} {username}": password}))

    def delete_password(self, service: str, username: str) -> None:
        entries = self._entries()
        if entries.pop(f"{service} {username}", None) is None:
            raise PasswordDeleteError("there is none")
        self._path.write_text(json.dumps(entries))

    def _entries(self) -> dict[str, str]:
        try:
            found: dict[str, str] = json.loads(self._path.read_text())
        except FileNotFoundError:
            return {}
        return found


class DeafKeyring(FileKeyring):
    """Forgets what it is told to keep, without a word."""

    def set_password(self, service: str, username: str, password: str) -> None:
        del service, username, password
