"""Sources of secrets are asked in order, within time limits, and named without values."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
import trio
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked

from capd.adapters.secrets import system_keyring
from capd.adapters.secrets.stored_secrets import StoredSecrets

PATIENCE = 30.0


class MemoryKeyring(KeyringBackend):
    """A scripted keyring in memory, with a journal."""

    priority: Any = 5

    def __init__(self, **values: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # it is keyring's
        self.values = values
        self.asked: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.unlocked = threading.Event()
        self.unlocked.set()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked.append((service, username))
        self.unlocked.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        return self.values.get(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        del service
        self.values[username] = password


@pytest.fixture
def backend() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    made = MemoryKeyring()
    keyring.set_keyring(made)
    yield made
    made.unlocked.set()
    keyring.set_keyring(before)


@pytest.fixture
def stored(tmp_path: Path) -> StoredSecrets:
    (tmp_path / "credentials").mkdir()
    return StoredSecrets(tmp_path, str(tmp_path / "credentials"))


def in_file(folder: Path, text: str) -> None:
    file = folder / "secrets.env"
    file.write_text(text)
    file.chmod(0o600)


async def test_the_keyring_comes_first_then_credentials_then_the_file(
    backend: MemoryKeyring, stored: StoredSecrets, tmp_path: Path
) -> None:
    backend.values = {"A": "ring", "EMPTY": ""}
    for key in ("A", "B"):
        (tmp_path / "credentials" / key).write_text("credential\n")
    in_file(tmp_path, "A=file\nB=file\nC=file\nEMPTY=file\n")

    await stored.ask_again(["A", "B", "C", "EMPTY", "NONE"])

    assert stored.values() == {"A": "ring", "B": "credential", "C": "file", "EMPTY": "file"}
    assert stored.sources() == {
        "A": "keyring",
        "B": "credentials",
        "C": "secrets.env",
        "EMPTY": "secrets.env",
    }
    assert (stored.problems(), stored.notes()) == ([], [])


async def test_only_keys_that_are_asked_for_are_looked_up(
    backend: MemoryKeyring, stored: StoredSecrets, tmp_path: Path
) -> None:
    backend.values = {"A": "one", "OTHER": "x"}
    (tmp_path / "credentials" / "OTHER").write_text("x")

    await stored.ask_again([])
    await stored.ask_again(["A"])

    assert backend.asked == [("capd", "A")]
    assert stored.values() == {"A": "one"}


async def test_what_was_taken_away_is_gone_when_it_is_asked_for_again(
    backend: MemoryKeyring, stored: StoredSecrets
) -> None:
    backend.values = {"A": "one", "B": "two"}
    await stored.ask_again(["A", "B"])
    backend.values = {}

    await stored.ask_again(["A"])

    assert stored.values() == {"B": "two"}


async def test_a_keyring_that_fails_is_no_value_and_a_note_without_what_it_said(
    backend: MemoryKeyring, stored: StoredSecrets
) -> None:
    backend.error = KeyringLocked("hunter2")

    await stored.ask_again(["A"])

    assert stored.values() == {}
    assert stored.notes() == ["keyring: it failed with KeyringLocked: is it locked?"]


async def test_a_keyring_that_keeps_nothing_safely_is_not_used(
    backend: MemoryKeyring, stored: StoredSecrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryKeyring, "priority", 0.5)
    backend.values = {"A": "one"}

    await stored.ask_again(["A"])

    assert (stored.values(), backend.asked) == ({}, [])
    assert stored.notes() == [
        "keyring: there is none that keeps secrets safely; secrets.env takes its place"
    ]


async def test_a_keyring_that_hangs_is_waited_for_once_and_holds_nobody_up(
    backend: MemoryKeyring,
    stored: StoredSecrets,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(system_keyring, "ANSWER_TIMEOUT", 0.2)
    in_file(tmp_path, "A=file\n")
    backend.values = {"A": "ring"}
    backend.unlocked.clear()

    with trio.fail_after(PATIENCE):
        await stored.ask_again(["A"])
        await stored.ask_again(["A"])

    assert backend.asked == [("capd", "A")]
    assert stored.values() == {"A": "file"}
    assert stored.notes() == ["keyring: it did not answer within 0.2 s: is it locked?"]


async def test_a_keyring_that_is_unlocked_after_all_is_asked_again(
    backend: MemoryKeyring, stored: StoredSecrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_keyring, "ANSWER_TIMEOUT", 0.2)
    backend.values = {"A": "ring"}
    backend.unlocked.clear()
    await stored.ask_again(["A"])
    backend.unlocked.set()
    monkeypatch.setattr(system_keyring, "ANSWER_TIMEOUT", PATIENCE)

    with trio.fail_after(PATIENCE):
        while not stored.values():
            await stored.ask_again(["A"])

    assert (stored.values(), stored.notes()) == ({"A": "ring"}, [])


async def test_two_questions_at_once_get_both_their_answers(
    backend: MemoryKeyring, stored: StoredSecrets
) -> None:
    backend.values = {"A": "one", "B": "two"}

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stored.ask_again, ["A"])
        nursery.start_soon(stored.ask_again, ["B"])

    assert stored.values() == {"A": "one", "B": "two"}


async def test_no_value_is_shown(
    backend: MemoryKeyring, stored: StoredSecrets, tmp_path: Path
) -> None:
    backend.values = {"A": "hunter2"}
    in_file(tmp_path, "B=hunter2\n")

    await stored.ask_again(["A"])

    assert "hunter2" not in f"{stored!r} {vars(stored)['_file']!r}"
