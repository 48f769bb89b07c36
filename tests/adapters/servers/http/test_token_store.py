"""Where logins are stored, and who can read them."""

import stat
from pathlib import Path

import keyring.backend
import keyring.errors
import pytest
from keyring.compat import properties

from capd.adapters.servers.http.token_store import FileStore, KeyringStore, TokenStore, best_store


class Ring(keyring.backend.KeyringBackend):
    """A keyring in memory that can be locked."""

    @properties.classproperty
    def priority(cls) -> float:  # noqa: N805 - the library's decorator hands over the class
        return 0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's has no types
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def _open(self) -> dict[tuple[str, str], str]:
        if self.is_locked:
            raise keyring.errors.KeyringLocked
        return self.kept

    def get_password(self, service: str, username: str) -> str | None:
        return self._open().get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._open()[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        if self._open().pop((service, username), None) is None:
            raise keyring.errors.PasswordDeleteError


@pytest.fixture(params=["file", "keyring"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    files = FileStore(tmp_path / "logins")
    return files if request.param == "file" else KeyringStore(Ring(), files)


def test_what_was_kept_last_is_found_and_what_was_deleted_is_not(store: TokenStore) -> None:
    found = [store.load("k")]
    for text in ("one", "two"):
        store.save("k", text)
        found.append(store.load("k"))
    store.delete("k")
    store.delete("k")

    found.append(store.load("k"))

    assert found == [None, "one", "two", None]


def test_a_file_is_its_owners_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "logins"
    folder.mkdir(parents=True, mode=0o755)

    FileStore(folder).save("k", "secret")

    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.iterdir())}
    assert modes == {"logins": 0o700, "k.json": 0o600}


def test_what_a_locked_keyring_does_not_take_goes_into_a_file(tmp_path: Path) -> None:
    ring = Ring()
    store = KeyringStore(ring, FileStore(tmp_path))
    ring.is_locked = True

    store.save("k", "one")

    assert ((tmp_path / "k.json").read_text(), store.load("k")) == ("one", "one")


def test_a_locked_keyring_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    ring = Ring()
    store = KeyringStore(ring, FileStore(tmp_path))
    store.save("k", "one")
    ring.is_locked = True

    with pytest.raises(OSError, match="the keyring is locked"):
        store.load("k")


def test_what_an_open_keyring_takes_is_in_no_file(tmp_path: Path) -> None:
    files = FileStore(tmp_path)
    files.save("k", "old")

    KeyringStore(Ring(), files).save("k", "one")

    assert list(tmp_path.iterdir()) == []


def test_a_keyring_that_keeps_nothing_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "get_keyring", Ring)

    store = best_store(tmp_path)

    assert isinstance(store, FileStore)
