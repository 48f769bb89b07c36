"""capd's entry in the list of servers of one client's file, in that client's format."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from types import ModuleType
from typing import Any

from capd_client.install import jsonc_edits
from capd_client.install.documents import is_blank, program_of, read_document, read_servers
from capd_client.install.known_clients import Format, KnownClient, ServersFile
from capd_client.install.launcher import NAME as LAUNCHER_NAME
from capd_client.install.plain_data import Path, found, is_there

NAME = "capd"


class ServerEntry:
    """Adds capd's entry to the text of a client's file, finds it, and removes it.

    An entry named capd is capd's own if it starts the launcher; otherwise it is the user's.

    Raises:
        UnreadableError: the text is not in the file's format, or cannot be edited.
    """

    def __init__(self, client: KnownClient, file: ServersFile, launcher: FilePath) -> None:
        self._client = client
        self._file = file
        self.entry = _with_launcher(client.entry, launcher)
        self._defaults = _with_launcher(client.defaults, launcher)

    def add(self, text: str) -> str:
        """Return the text of the file with capd's entry.

        If `text` has capd's own entry already, members that the user added to it stay, and so do
        the client's defaults that the user changed, such as a switch. A user's own entry named capd
        is replaced.
        """
        edits = edits_of(self._file.format)
        if is_blank(text):
            for key, value in self._client.new_file.items():
                text = edits.put(text, (key,), value)
        there = self._own(text)
        if not _is_ours(there):
            return self._put_whole(text)
        path = self._path(text)
        absent = {key: value for key, value in self._defaults.items() if key not in there}
        for key, value in {**self.entry, **absent}.items():
            text = edits.put(text, (*path, key), value)
        return text

    def remove(self, text: str, original: str | None) -> str:
        """Return `text` without capd's entry. An entry that it replaced is restored.

        The replaced entry is taken from `original`, the text before the installation; None if that
        is not known.
        """
        if not _is_ours(self._own(text)):
            return text
        edits = edits_of(self._file.format)
        before = self._own(original) if original else None
        if before is not None and not _is_ours(before):
            return str(edits.put(text, self._path(text), before))
        text = edits.take(text, self._path(text))
        return _pruned(text, self._file, original)

    def is_off(self, text: str) -> bool:
        """Tell whether capd's entry in `text` is switched off."""
        entry = self._own(text) or {}
        return any(entry.get(key) is value for key, value in self._client.off.items())

    def own_program(self, text: str) -> str | None:
        """Return the program of the entry named capd; None if there is no such entry.

        It is empty if the entry names no program.
        """
        entry = self._own(text)
        return None if entry is None else program_of(entry)

    def _own(self, text: str) -> Any:
        return read_servers(text, self._file).get(NAME)

    def _put_whole(self, text: str) -> str:
        edits = edits_of(self._file.format)
        whole = {**self.entry, **self._defaults}
        if self._file.layout == "map" or NAME in read_servers(text, self._file):
            return str(edits.put(text, self._path(text), whole))
        return str(edits.append(text, self._file.servers, whole))

    def _path(self, text: str) -> Path:
        if self._file.layout == "map":
            return (*self._file.servers, NAME)
        items = found(read_document(text, self._file.format), self._file.servers) or []
        named = [item.get("name") if isinstance(item, dict) else None for item in items]
        # Of two entries with one name the last counts, as it does for `read_servers`.
        return (*self._file.servers, len(named) - 1 - named[::-1].index(NAME))


def _pruned(text: str, file: ServersFile, original: str | None) -> str:
    """Return `text` without empty containers that capd created on the way to the servers.

    `file` says where the servers are. If the original is unknown, an empty container may be the
    user's, and stays.
    """
    if original is None:
        return text
    known = read_document(original, file.format)
    for depth in range(len(file.servers), 0, -1):
        path = file.servers[:depth]
        has_any = found(read_document(text, file.format), path)
        if has_any or is_there(known, path):
            break
        text = edits_of(file.format).take(text, path)
    return text


def _is_ours(entry: Any) -> bool:
    return FilePath(program_of(entry)).name == LAUNCHER_NAME


def _with_launcher(entry: Mapping[str, Any], launcher: FilePath) -> dict[str, Any]:
    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(each) for each in value]
        return str(launcher) if value == "{launcher}" else value

    return {key: filled(value) for key, value in entry.items()}


def edits_of(kind: Format) -> ModuleType:
    """Return the module that edits a format, with `put`, `take` and (not for TOML) `append`."""
    # Imported here: their libraries take longer than everything else.
    if kind == "toml":
        from capd_client.install import toml_edits  # noqa: PLC0415

        return toml_edits
    if kind == "yaml":
        from capd_client.install import yaml_edits  # noqa: PLC0415

        return yaml_edits
    return jsonc_edits
