"""Removes imported servers from a client's file (`capd import --replace`), and restores them.

capd is installed into the client first, and uninstalled after the servers are restored. In this
order, a file that nobody else has changed gets its original bytes back. If a file was changed in
between, capd adds only those servers that the file lacks.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from capd_client.importing.definition import Origin
from capd_client.install import InstallError
from capd_client.install.documents import read_document
from capd_client.install.edits import (
    FileChange,
    FileEdit,
    make,
    plan_install,
    plan_uninstall,
    unmake,
)
from capd_client.install.files import PRIVATE, read, real_path, replace
from capd_client.install.known_clients import Format
from capd_client.install.ledger import Ledger
from capd_client.install.plain_data import found, is_same, without
from capd_client.install.server_entry import edits_of
from capd_protos.places import make_folders

_LEDGER = "import"
_Keys = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TakenFile:
    """The servers that were removed from a client's file, so that they can be put back."""

    client: str
    format: Format
    names: tuple[_Keys, ...]
    """For each server, the keys that lead to the file's object or list of servers, and then the
    server's name."""


class Replacements:
    """The record of what was removed from which file, in capd's state folder.

    Raises:
        InstallError: the record is damaged.
    """

    def __init__(self, state: Path) -> None:
        self._ledger = Ledger(state, _LEDGER)
        self._state = state
        self._path = state / "install" / "imported.json"

    def files(self) -> dict[Path, TakenFile]:
        """Return the files from which servers were removed and not restored."""
        files = self._read()["files"]
        noted = self._ledger.entries()
        return {path: each for path, each in files.items() if path in noted}

    def installed(self) -> list[str]:
        """Return the ids of the clients into which `capd import` installed capd."""
        return list(self._read()["installed"])

    def take(self, origins: Mapping[Origin, Mapping[str, Any]]) -> Path | None:
        """Remove the servers `origins`, which are all in one file.

        Return the path of the original's backup; None if there is none. The value of each
        origin is the server's entry as it was read, which must not have changed since.

        Raises:
            InstallError: the file has changed since it was read, or cannot be edited.
        """
        first = next(iter(origins))
        path = real_path(first.file)
        kind: Format = first.format
        before = self.files().get(path)
        taken = [(*origin.keys[:-1], origin.name) for origin in origins]
        names = tuple(dict.fromkeys((*(before.names if before else ()), *taken)))
        edit = FileEdit(
            path,
            lambda text: _without(path, text, kind, {o.keys: v for o, v in origins.items()}),
            lambda text, original: _with(text, original, kind, names),
        )
        with self._ledger.locked():
            (change,) = plan_install(self._ledger, [edit])
            self._write(path, TakenFile(first.client, kind, names))
            return make(self._ledger, change)

    def note_installed(self, client: str) -> None:
        """Note that an import installed capd into `client`."""
        known = self._read()
        self._store({**known, "installed": sorted({*known["installed"], client})})

    def put_back(self, client: str) -> list[Path]:
        """Restore the servers that were removed from files of `client`; return the files' paths.

        Raises:
            InstallError: a file cannot be edited.
        """
        done = []
        for path, taken in self.files().items():
            if taken.client == client:
                self._put_back(path, taken)
                done.append(path)
        known = self._read()
        files = {path: each for path, each in known["files"].items() if path not in done}
        rest = [each for each in known["installed"] if each != client]
        if (files, rest) != (known["files"], known["installed"]):
            self._store({"files": files, "installed": rest})
        return done

    def planned_back(self, client: str) -> list[FileChange]:
        """Return the changes to files of `client` that `put_back` would make.

        Raises:
            InstallError: a file cannot be edited.
        """
        edits = [_back(path, each) for path, each in self.files().items() if each.client == client]
        return plan_uninstall(self._ledger, edits)

    def forget(self) -> list[Path]:
        """Remove the backups of the changed files; return their paths.

        The backups that `capd install` made of the same files are removed too, and so are backups
        that no ledger refers to. Those stayed because a file was changed before it was restored.

        Raises:
            InstallError: the record of a client cannot be read.
        """
        folder = self._path.parent
        with self._ledger.locked():
            names = [path.stem for path in folder.glob("*.json") if path != self._path]
            ledgers = {name: Ledger(self._state, name) for name in names}
            # All records are read before a copy is deleted: a damaged one may refer to any copy.
            noted = {name: ledger.entries() for name, ledger in ledgers.items()}
            there = sorted(folder.glob("*.backup"))
            for path, taken in self.files().items():
                for name in (_LEDGER, taken.client):
                    if noted.get(name, {}).pop(path, None) is not None:
                        ledgers[name].forget(path, keep_backup=True)
            named = {each.backup for entries in noted.values() for each in entries.values()}
            gone = [copy for copy in there if copy.name not in named]
            for copy in gone:
                copy.unlink(missing_ok=True)
            self._store({"files": {}, "installed": []})
            return gone

    def _put_back(self, path: Path, taken: TakenFile) -> None:
        with self._ledger.locked():
            (change,) = plan_uninstall(self._ledger, [_back(path, taken)])
            unmake(self._ledger, change)

    def _read(self) -> dict[str, Any]:
        data = read(self._path)
        if data is None:
            return {"files": {}, "installed": []}
        try:
            document = json.loads(data)
            files = {
                Path(path): TakenFile(
                    each["client"], each["format"], tuple(tuple(names) for names in each["names"])
                )
                for path, each in document["files"].items()
            }
            return {"files": files, "installed": [str(each) for each in document["installed"]]}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InstallError(
                f"{self._path} is damaged\n"
                f"Move it away, then try again. The original files are in {self._path.parent}."
            ) from None

    def _write(self, path: Path, taken: TakenFile) -> None:
        known = self._read()
        self._store({**known, "files": {**known["files"], path: taken}})

    def _store(self, known: Mapping[str, Any]) -> None:
        files = {
            str(path): {"client": each.client, "format": each.format, "names": each.names}
            for path, each in known["files"].items()
        }
        document = {"schema": 1, "files": files, "installed": known["installed"]}
        make_folders(self._path.parent)
        replace(self._path, (json.dumps(document, indent=2) + "\n").encode(), PRIVATE)


def _back(path: Path, taken: TakenFile) -> FileEdit:
    """Return an edit of `path`: `add` changes nothing, and `remove` restores the servers."""
    return FileEdit(
        path,
        lambda text: text,
        lambda text, original: _with(text, original, taken.format, taken.names),
    )


def _last_first(keys: _Keys) -> tuple[int, ...]:
    """Return a sort key that puts later items of a list first.

    If items are removed in this order, the positions of the remaining ones stay valid.
    """
    return tuple(-step for step in keys if isinstance(step, int))


def _without(
    path: Path, text: str, kind: Format, servers: Mapping[_Keys, Mapping[str, Any]]
) -> str:
    """Return `text`, the content of the client's file `path`, without `servers`.

    The keys of `servers` lead to each server in the file; its values are the entries as they were
    read.

    Raises:
        InstallError: one of them has changed since it was read, or the text cannot be edited.
    """
    before = read_document(text, kind)
    keys = sorted(servers, key=_last_first)
    if not all(is_same(found(before, each), servers[each]) for each in keys):
        raise InstallError(
            f"{path} was changed by another program at this moment\n"
            "Nothing was written to it. Run the command again."
        )
    after = reduce(lambda done, each: str(edits_of(kind).take(done, each)), keys, text)
    if not is_same(read_document(after, kind), reduce(without, keys, before)):
        raise InstallError(
            f"{path} is written in a way that capd cannot edit safely\n"
            "Its servers stay in it. Remove them by hand."
        )
    return after


def _with(text: str, original: str | None, kind: Format, names: Iterable[_Keys]) -> str:
    """Copy servers from `original`: those of `names` that `text` lacks. Return the new text."""
    known = None if original is None else read_document(original, kind)
    for *keys, name in names:
        container = tuple(keys)
        servers = found(known, container)
        there = found(read_document(text, kind), container)
        if isinstance(servers, list):
            if name not in _names(there):
                items = [item for item in servers if name in _names([item])]
                for item in items:
                    text = edits_of(kind).append(text, container, item)
        elif isinstance(servers, dict) and name in servers and name not in (there or {}):
            text = edits_of(kind).put(text, (*container, name), servers[name])
    return text


def _names(items: Any) -> list[Any]:
    return [item.get("name") for item in items or () if isinstance(item, dict)]
