"""Reads the entries of servers from clients' files; `entries.py` interprets them.

A file that cannot be read is reported, and the others are read. The report has the line number but
not the parser's message, because that may quote a secret of the file.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capd_client.importing.definition import Origin, shown
from capd_client.install import plain_data
from capd_client.install.jsonc import JsoncError, parse
from capd_client.install.known_clients import KnownClient, ServersFile

_LARGEST_BYTES = 32 << 20
"""The most bytes of a file. Claude Code's file contains the histories of its sessions, too."""


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One server's entry, as it is written in a client's file."""

    origin: Origin
    client: KnownClient
    value: Mapping[str, Any] = field(repr=False)
    inputs: Mapping[str, str] = field(default_factory=dict)
    is_of_project: bool = False
    """Whether it is in a file of the project's folder, which others may have written."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file, or a part of one, that cannot be used."""

    client: str
    title: str
    file: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.title} ({shown(self.file)}): {self.reason}"


@dataclass(slots=True)
class Sources:
    """Everything that was found in clients' files."""

    files: list[Path] = field(default_factory=list)
    entries: list[SourceEntry] = field(default_factory=list)
    unreadable: list[Unreadable] = field(default_factory=list)
    switched_off: set[tuple[str, str]] = field(default_factory=set)
    """Servers that a list of names switches off, by client and name."""


def read_sources(clients: Iterable[KnownClient], env: Mapping[str, str], project: Path) -> Sources:
    """Read the servers in the files of `clients`: the user's, and those in the folder `project`.

    `env` has the variables that paths refer to.
    """
    found = Sources()
    seen: set[tuple[Path, tuple[str, ...]]] = set()
    for client in clients:
        for file in _files(client, env, project):
            if not _is_file(file.path):
                continue
            at = (file.path.resolve(), file.servers)
            if at not in seen:
                seen.add(at)
                is_of_users = file in client.user_files(env)
                _read(found, client, file, project, is_of_project=not is_of_users)
    return found


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # A folder of another user, which cannot be searched.
        return False


def document(path: Path, format_: str) -> Any:
    """Return the data in the file at `path`, in the format `format_`; an empty map if it is blank.

    Raises:
        ValueError: the file cannot be read, is too large, or is not in that format. The text says
            why and quotes nothing of the file.
    """
    try:
        data = path.read_bytes() if path.stat().st_size <= _LARGEST_BYTES else None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    if data is None:
        raise ValueError(f"it has more than {_LARGEST_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line}: it is not UTF-8") from None
    return _parsed(text, format_) if text.strip() else {}


def _parsed(text: str, format_: str) -> Any:
    try:
        if format_ == "toml":
            return tomllib.loads(text)
        if format_ == "yaml":
            return _yaml(text)
        return _json(text)
    except JsoncError as error:
        raise ValueError(f"line {error.line}: it is not JSON") from None
    except tomllib.TOMLDecodeError as error:
        where = str(error).rpartition("(at ")[2].partition(",")[0]
        raise ValueError(
            f"{where if where.startswith('line ') else 'it'}: it is not TOML"
        ) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # This parser accepts comments and is much slower. A long history without comments is
        # parsed above.
        return parse(text).value


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - as few commands need it

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        # PyYAML's own errors, and errors of Python that PyYAML raises for an invalid value.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        raise ValueError(f"{where}it is not YAML") from None


def _files(client: KnownClient, env: Mapping[str, str], project: Path) -> Iterator[ServersFile]:
    if not client.is_edited:
        return
    yield from client.user_files(env)
    if project != Path(env.get("HOME") or Path.home()):
        yield from client.project_files(project)


def _read(
    found: Sources, client: KnownClient, file: ServersFile, project: Path, *, is_of_project: bool
) -> None:
    def wrong(reason: str) -> None:
        found.unreadable.append(Unreadable(client.id, client.title, file.path, reason))

    found.files.append(file.path)
    try:
        root = document(file.path, file.format)
    except ValueError as error:
        wrong(str(error))
        return
    inputs = dict(_inputs(plain_data.found(root, client.inputs) if client.inputs else None))
    places = [file.servers]
    if client.local:
        places.append(_in_project(client.local, project))
    if not is_of_project:
        for keys in client.switched_off:
            names = plain_data.found(root, _in_project(keys, project))
            found.switched_off |= {
                (client.id, name)
                for name in (names if isinstance(names, list) else ())
                if isinstance(name, str)
            }
    for keys in places:
        servers = plain_data.found(root, keys)
        if servers is None:
            continue
        kind = dict if file.layout == "map" else list
        if not isinstance(servers, kind):
            wrong(f"`{'.'.join(keys)}` is not {'an object' if kind is dict else 'a list'}")
            continue
        for step, name, value in _named(servers):
            if not isinstance(value, dict):
                wrong(f"`{name}` is not an object")
                continue
            origin = Origin(client.id, client.title, file.path, file.format, (*keys, step), name)
            found.entries.append(SourceEntry(origin, client, value, inputs, is_of_project))


def _in_project(keys: tuple[str, ...], project: Path) -> tuple[str, ...]:
    return tuple(str(project) if key == "{project}" else key for key in keys)


def _named(servers: Any) -> Iterator[tuple[str | int, str, Any]]:
    if isinstance(servers, dict):
        for key, value in servers.items():
            yield str(key), str(key), value
        return
    for number, value in enumerate(servers):
        name = value.get("name") if isinstance(value, dict) else None
        yield number, name if isinstance(name, str) and name else f"server {number + 1}", value


def _inputs(inputs: Any) -> Iterator[tuple[str, str]]:
    for each in inputs if isinstance(inputs, list) else ():
        if isinstance(each, dict) and isinstance(each.get("id"), str):
            text = each.get("description")
            yield each["id"], (text if isinstance(text, str) and text else each["id"])[:200]
