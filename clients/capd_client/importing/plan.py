"""The plan of an import: servers to add, secrets to store, and entries that are left out.

Everything is decided before anything is written. A stored value is never overwritten: if a key has
another value (in a store, in the environment, or for another server of the plan), the new secret
gets a key that begins with its server's name.
"""

import re
import tomllib
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from capd_client.importing import merging, variables
from capd_client.importing.definition import Definition, Hidden, Origin, Text, package
from capd_client.importing.entries import read_entry
from capd_client.importing.merging import Merged, short_package
from capd_client.importing.source_files import Sources, Unreadable
from capd_client.importing.variables import ImportValues, NotImportedError, read_back
from capd_client.own_tap import OwnServer, OwnTap, check, words_of
from capd_client.stored_secrets import SecretError, checked_value
from capd_client.taps import TapError

IN_FOLDER = ("sh", "-c", 'cd "$0" && exec "$@"')
_NO_SUBJECT = frozenset(("mcp", "api", "www", "server", "localhost", "app", "com", "dev", "io"))
_LONGEST_KEY = 100
_MOST_TRIGGERS = 10


@dataclass(slots=True)
class PlannedServer:
    """A server that the import will add, or that the user has in capd already."""

    name: str
    origins: list[Origin]
    notes: list[str]
    server: OwnServer | None = None
    """None if the user has it already."""
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    missing: list[str] = field(default_factory=list)
    """Keys that it needs and that have no value here."""
    is_of_project: bool = False
    """Whether only files of the project have it."""
    from_tools: list[str] = field(default_factory=list)
    """The triggers that were made from the descriptions of its tools."""
    tools_of: str = ""
    """The tap that its tool list is from; empty if it has listed its tools on this machine."""

    def take_tools(self, proposed: Sequence[str], source: str) -> None:
        """Add the triggers `proposed`, which were made from the server's tools.

        `source` becomes `tools_of`. Nothing happens for a server that exists already.
        """
        if self.server is None:
            return
        self.from_tools = [each for each in proposed if each not in self.server.triggers]
        self.tools_of = source
        self.server = replace(
            self.server,
            triggers=[*self.server.triggers, *self.from_tools],
            triggers_from_tools=not self.from_tools,
        )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One entry that the import leaves out, and why."""

    origin: Origin
    reason: str


@dataclass(slots=True)
class ImportPlan:
    """All that an import would do: servers to add, secrets to store, and what is left out."""

    files: int
    planned: list[PlannedServer]
    left_out: list[LeftOut]
    unreadable: list[Unreadable]

    @property
    def added(self) -> list[PlannedServer]:
        """The servers that the user does not have in capd yet."""
        return [each for each in self.planned if each.server is not None]

    def leave_out(self, planned: PlannedServer, reason: str) -> None:
        """Move a server from `planned` to `left_out`, with the reason."""
        self.planned.remove(planned)
        self.left_out += [LeftOut(origin, reason) for origin in planned.origins]


def plan_import(
    sources: Sources,
    around: ImportValues,
    own: Mapping[str, Definition],
    values: Mapping[str, str],
    triggers: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ImportPlan:
    """Return the plan for everything that was found in `sources`.

    `around` has the values that placeholders stand for. `own` are the servers that the user has in
    capd already, `values` the known values of keys. `triggers` are those of existing capabilities
    by name: a new capability takes over the triggers of the one that it hides.
    """
    found = [
        read_entry(
            entry, around, is_off=(entry.client.id, entry.origin.name) in sources.switched_off
        )
        for entry in sources.entries
    ]
    plan = ImportPlan(len(sources.files), [], [], list(sources.unreadable))
    plan.left_out = [LeftOut(r.entry.origin, r.reason) for r in found if r.reason]
    keys = _Keys(values)
    for each in merging.merge_definitions(found, own, values):
        if each.known:
            plan.planned.append(_there(each, values))
            continue
        try:
            plan.planned.append(_added(each, keys, triggers.get(each.name, ())))
        except (NotImportedError, SecretError, TapError) as error:
            reason = str(error).partition("\n")[0]
            plan.left_out += [LeftOut(origin, reason) for origin in each.origins]
    return plan


class _Keys:
    """The known values of keys, those in the stores and those of this plan."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.known: ChainMap[str, str] = ChainMap({}, values)  # type: ignore[arg-type]  # only the first is written to

    def key(self, server: str, secret: Hidden) -> str:
        """Return the key under which `secret` of `server` is stored.

        It is the first candidate that is free or has the same value.
        """
        prefix = variables.key_of(server)
        own = secret.hint if secret.hint.startswith(prefix) else f"{prefix}_{secret.hint}"
        own = own[:_LONGEST_KEY].strip("_")
        own = f"_{own}" if own[:1].isdigit() else own
        keys = [*([secret.hint] if secret.is_named else []), own]
        keys += [f"{own}_{number}" for number in range(2, 1000)]
        return next(k for k in keys if self.known.get(k, secret.value) in (secret.value, ""))


def _there(each: Merged, known: Mapping[str, str]) -> PlannedServer:
    missing = [key for key in dict.fromkeys(each.server.references()) if not known.get(key)]
    return PlannedServer(each.known, each.origins, ["it is there already"], missing=missing)


def _added(each: Merged, keys: _Keys, known_triggers: Sequence[str]) -> PlannedServer:
    planned = PlannedServer(each.name, each.origins, each.notes, is_of_project=each.is_of_project)

    def key(secret: Hidden) -> str:
        name = keys.key(each.name, secret)
        if secret.value:
            planned.secrets[name] = checked_value(secret.value)
            keys.known[name] = secret.value
        elif not keys.known.get(name):
            planned.missing.append(name)
        return name

    def text(parts: Text) -> str:
        put = variables.written(parts, key)
        if "\0" in put or put != put.encode(errors="replace").decode():
            raise NotImportedError("it has a NUL or half a character in it")
        return put

    server = each.server
    line = [text(parts) for parts in server.line]
    if server.cwd:
        line = [*IN_FOLDER, text(server.cwd), *line]
    planned.server = OwnServer(
        each.name,
        line,
        text(server.url),
        {name: text(parts) for name, parts in server.env.items()},
        {name: text(parts) for name, parts in server.headers.items()},
        list(dict.fromkeys((*known_triggers[:_MOST_TRIGGERS], *_triggers(each)))),
        description=server.description or _description(server),
        tools=server.tools,
        timeout=server.timeout,
        triggers_from_tools=True,
    )
    check(planned.server)
    planned.missing += [key for key in server.references() if not keys.known.get(key)]
    planned.missing = list(dict.fromkeys(planned.missing))
    in_line = [part for parts in server.line for part in parts if isinstance(part, Hidden)]
    if in_line:
        planned.notes.append("its command has a secret, which lists of processes show")
    return planned


def _triggers(each: Merged) -> Iterator[str]:
    """Yield triggers made from a server's name, and from the name of its package or host."""
    name = short_package(each.name)
    yield from words_of(name)
    for other in _subjects(each.server):
        if _spoken(other) not in ("", _spoken(name)):
            yield from words_of(short_package(other))[:2]


def _description(server: Definition) -> str:
    """Return a description of a server for which no client has one; empty if nothing is known."""
    name = package(server)[0]
    if name:
        return f"The MCP server of the package {name}"
    if server.url and isinstance(server.url[0], str):
        return f"The MCP server at {urlsplit(server.url[0]).hostname or 'its address'}"
    return ""


def _subjects(server: Definition) -> Iterator[str]:
    yield package(server)[0]
    if server.url and isinstance(server.url[0], str):
        host = urlsplit(server.url[0]).hostname or ""
        labels = [each for each in host.split(".")[:-1] if each not in _NO_SUBJECT]
        is_name = not host.replace(".", "").isdigit()
        yield labels[-1] if labels and is_name else ""


def _spoken(name: str) -> str:
    return re.sub(r"[-_.]+", " ", short_package(name)).strip().casefold()


def own_definitions(tap: OwnTap) -> dict[str, Definition]:
    """Return the servers of `tap` by name.

    If a server's file cannot be read, its definition is empty, and so equals no server that was
    found.
    """
    return dict(_each(tap))


def _each(tap: OwnTap) -> Iterator[tuple[str, Definition]]:
    for name in tap.names():
        try:
            text = (tap.folder / "capabilities" / name / "default.toml").read_text("utf-8")
            (server,) = tomllib.loads(text)["mcp"]["servers"]
            yield name, _definition(server)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            yield name, Definition()


def _definition(server: dict[str, Any]) -> Definition:
    words = [str(server.get("command") or ""), *map(str, server.get("args") or ())]
    cwd = ""
    if tuple(words[: len(IN_FOLDER)]) == IN_FOLDER:
        _, _, _, cwd, *words = words
    return Definition(
        line=tuple(map(read_back, words)) if words != [""] else (),
        url=read_back(str(server.get("url") or "")),
        env={key: read_back(value) for key, value in (server.get("env") or {}).items()},
        headers={key: read_back(value) for key, value in (server.get("headers") or {}).items()},
        cwd=read_back(cwd),
        tools=tuple(server.get("tools") or ()),
    )
