"""Merges the definitions of the same server from several files, and gives each server a name.

The first definition counts. The others add the values that the first only refers to, a timeout and
a description if the first has none, and the places where the server was found. A server's name is
the one that people chose, if capd allows it. If the user's own files have a server, nothing of it
is taken from a project's files.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from capd_client.importing.definition import (
    Definition,
    Hidden,
    Origin,
    Reference,
    Text,
    difference,
    identity,
    package,
)
from capd_client.importing.entries import ReadEntry
from capd_client.own_tap import LONGEST_NAME, is_server_name

_GENERIC = frozenset(("server", "mcp", "mcp-server", "default", "main", "test", "local", "remote"))
_REST_OF_PACKAGE = re.compile(
    r"^(?:mcp[-_]server[-_]|server[-_]|mcp[-_])|(?:[-_]mcp(?:[-_]server)?|[-_]server)$"
)
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(slots=True)
class Merged:
    """One server, and all places where its definition was found."""

    server: Definition
    origins: list[Origin]
    name: str = ""
    notes: list[str] = field(default_factory=list)
    known: str = ""
    """The name of the user's own server that is the same; empty if there is none."""
    is_of_project: bool = False
    """Whether only files of the project have it."""
    given: list[str] = field(default_factory=list)
    """The names that people gave it."""


def merge_definitions(
    found: Iterable[ReadEntry], own: Mapping[str, Definition], values: Mapping[str, str]
) -> list[Merged]:
    """Return each server once, under a unique name.

    `own` are the servers that the user has in capd already, by name. They are returned as well, if
    they were found again. `values` are the known values of keys.
    """
    servers = [Merged(server, [], name, known=name) for name, server in own.items()]
    for read in sorted(found, key=lambda each: each.entry.is_of_project):
        if read.server is None:
            continue
        one = _same(servers, read.server, values)
        if one is None:
            one = Merged(read.server, [], is_of_project=read.entry.is_of_project)
            relation = _relation(servers, read.server, values)
            one.notes += [relation] if relation else []
            servers.append(one)
        elif not one.known and read.entry.is_of_project == one.is_of_project:
            if set(one.server.tools) != set(read.server.tools):
                one.notes.append("its clients allow different tools: capd allows all of them")
            one.server = _joined(one.server, read.server)
        one.origins.append(read.entry.origin)
        if read.entry.is_of_project == one.is_of_project:
            one.given.append(read.entry.origin.name)
        one.notes += [note for note in read.notes if note not in one.notes]
    _name(servers)
    return [each for each in servers if each.origins]


def _same(
    servers: Iterable[Merged], server: Definition, values: Mapping[str, str]
) -> Merged | None:
    key = identity(server)
    alike = [each for each in servers if identity(each.server) == key]
    return next((each for each in alike if not difference(each.server, server, values)), None)


def _relation(servers: Iterable[Merged], server: Definition, values: Mapping[str, str]) -> str:
    """Return how `server` differs from the first similar one of `servers`, as a note for a person.

    `values` are the known values of keys. The note is empty if no other server is similar.
    """
    others = [(each.name or fit_name(each.origins[0].name), each.server) for each in servers]
    for name, other in others:
        if identity(other) == identity(server):
            return f"as {name}, with another {difference(other, server, values)}"
    for name, other in others:
        if identity(other, is_versioned=False) == identity(server, is_versioned=False):
            ours, theirs = (package(one)[1] or "any" for one in (server, other))
            return f"as {name}, of another version: {ours}, not {theirs}"
    plain = identity(replace(server, env={}, headers={}))
    for name, other in others:
        if identity(replace(other, env={}, headers={})) == plain:
            return f"as {name}, with other variables or headers"
    return ""


def _joined(one: Definition, other: Definition) -> Definition:
    """Return `one`, completed from `other`.

    A value that `one` only refers to is replaced by the value in `other`, if `other` has it.
    """

    def better(ours: Text, theirs: Text) -> Text:
        is_reference = all(isinstance(p, Reference) or p == Hidden("", "") for p in ours)
        return theirs if is_reference and any(isinstance(p, Hidden) for p in theirs) else ours

    env = {key: better(text, other.env.get(key, text)) for key, text in one.env.items()}
    # An empty filter allows all tools.
    tools = tuple(dict.fromkeys((*one.tools, *other.tools))) if one.tools and other.tools else ()
    return replace(
        one,
        env=env,
        tools=tools,
        timeout=one.timeout or other.timeout,
        description=one.description or other.description,
    )


def _name(servers: Iterable[Merged]) -> None:
    taken = {each.known.casefold() for each in servers if each.known}
    for each in servers:
        if each.known:
            continue
        wanted = _wanted(each)
        name, number = wanted, 2
        while name.casefold() in taken:
            tail = f"-{number}"
            name, number = wanted[: LONGEST_NAME - len(tail)] + tail, number + 1
        taken.add(name.casefold())
        each.name = name


def _wanted(server: Merged) -> str:
    given = [name for each in server.given if (name := fit_name(each))]
    good = [name for name in given if name.casefold() not in _GENERIC]
    if good:
        # The most common name; of equally common ones, the first.
        return max(good, key=good.count)
    of_package = fit_name(short_package(package(server.server)[0]))
    return of_package or (given[0] if given else "server")


def short_package(name: str) -> str:
    """Return the name of a package without its scope, version, and affixes such as `mcp-server-`.

    `@scope/mcp-server-github@1.2.3` gives `github`.
    """
    bare = name.rstrip("/").rpartition("/")[2].partition("@")[0]
    shorter = _REST_OF_PACKAGE.sub("", _REST_OF_PACKAGE.sub("", bare))
    return shorter or bare


def fit_name(name: str) -> str:
    """Return `name` changed to a valid server name; empty if nothing valid is left."""
    # Registries name servers by the address of their repository.
    last = name.rstrip("/").rpartition("/")[2]
    fit = re.sub(r"_{2,}", "_", _UNFIT.sub("-", last)).strip("-_.")[:LONGEST_NAME].rstrip("-_.")
    return fit.casefold() if is_server_name(fit) else ""
