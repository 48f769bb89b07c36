"""A server's definition in some client's file, with its plain and its secret parts.

Two definitions are the same server if they have the same `identity` and no `difference`: everything
that affects the server's behaviour is equal. Whether a value is written as a secret or as a
reference makes no difference.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TypeAlias

from capd_client.install.known_clients import Format

_NPX_YES = frozenset({"-y", "--yes"})
_BY_NAME = frozenset({"npx", "uvx", "bunx", "uv", "pnpm", "docker", "podman", "node", "deno"})
"""Programs that are compared by their names, wherever they are installed."""
_VERSION = re.compile(r"(?P<name>@?[^@=\s][^@=\s]*)(?:@|==)(?P<version>[^@=\s/]+)")


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that is stored elsewhere: `{{ENV:key}}`."""

    key: str


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """The folder of the project in which the server is used: `{{PROJECT}}`."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A secret: the value goes to the store of secrets, and the definition gets its key."""

    value: str = field(repr=False)
    """Empty if the user still has to set it."""
    hint: str
    """The preferred name of its key."""
    is_named: bool = False
    """Whether the hint alone is a good key, as the name of a variable is. Otherwise the key begins
    with the server's name."""


Part: TypeAlias = str | Reference | ProjectFolder | Hidden
Text: TypeAlias = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The client, the file and the place in it that a definition comes from."""

    client: str
    title: str
    file: Path
    format: Format
    keys: tuple[str | int, ...]
    """The path to the entry in the file's data."""
    name: str

    def __str__(self) -> str:
        return f"{self.title} ({shown(self.file)})"


@dataclass(frozen=True, slots=True)
class Definition:
    """A server: a program to start (`line`), or an address to connect to (`url`)."""

    line: tuple[Text, ...] = ()
    """The program and its arguments."""
    url: Text = ()
    env: Mapping[str, Text] = field(default_factory=dict)
    headers: Mapping[str, Text] = field(default_factory=dict)
    cwd: Text = ()
    tools: tuple[str, ...] = ()
    timeout: float = 0.0
    description: str = ""

    def texts(self) -> Iterator[Text]:
        """Yield every text of the definition that may contain a placeholder or a secret."""
        yield from (*self.line, self.url, *self.env.values(), *self.headers.values(), self.cwd)

    def references(self) -> Iterator[str]:
        """Yield the key of every reference in the definition; a key may come twice."""
        yield from (p.key for text in self.texts() for p in text if isinstance(p, Reference))


def shown(path: PurePath) -> str:
    """Return a path as a person writes it, with `~` for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def identity(server: Definition, *, is_versioned: bool = True) -> tuple[object, ...]:
    """Return a tuple that all definitions of the same server have in common.

    Definitions with equal tuples may still differ in the values of variables, headers and secrets:
    `difference` compares those. Without `is_versioned` the tuple leaves out the version of a
    package as well.
    """
    return (
        _normal(server.line, is_versioned=is_versioned),
        _shape(server.url).rstrip("/"),
        tuple(sorted(server.env)),
        tuple(sorted(name.casefold() for name in server.headers)),
        _shape(server.cwd),
    )


def difference(one: Definition, other: Definition, values: Mapping[str, str]) -> str:
    """Return the first place where two definitions differ in a value; empty if they are equal.

    Both have the same `identity`. A place is a variable, `address`, `header NAME` or `argument
    (NUMBER)`. NUMBER counts only the arguments with a secret, a reference or the project's folder.
    `values` are the known values of keys. If one of two values is not known, their keys are
    compared instead.
    """
    ours, theirs = (_located(each) for each in (one, other))
    for place, text in ours.items():
        if place in theirs and not _agree(text, theirs[place], values):
            return place
    return ""


def package(server: Definition) -> tuple[str, str]:
    """Return name and version of the package that npx, uvx or bunx runs for `server`.

    Both are empty if none of these programs starts it.
    """
    line = _normal(server.line, is_versioned=True)
    if not line or line[0] not in {"npx", "uvx", "bunx"}:
        return "", ""
    name = next((word for word in line[1:] if not word.startswith("-")), "")
    match = _VERSION.fullmatch(name)
    return (match["name"], match["version"]) if match else (name, "")


def _located(server: Definition) -> dict[str, Text]:
    *before, last = server.url or ("",)
    # Many definitions end the address with a slash.
    url = (*before, last.rstrip("/")) if isinstance(last, str) else server.url
    places: dict[str, Text] = {**server.env, "address": url}
    places |= {f"header {name.casefold()}": text for name, text in server.headers.items()}
    line = [text for text in server.line if any(not isinstance(part, str) for part in text)]
    return places | {f"argument ({number})": text for number, text in enumerate(line, 1)}


def _agree(one: Text, other: Text, values: Mapping[str, str]) -> bool:
    ours, theirs = _value(one, values), _value(other, values)
    # If one of the values is not known, the names of their keys are compared.
    is_known = ours is not None and theirs is not None
    return ours == theirs if is_known else _keys(one) == _keys(other)


def _keys(text: Text) -> list[str]:
    return [
        part.key if isinstance(part, Reference) else part.hint
        for part in text
        if isinstance(part, Reference | Hidden)
    ]


def _value(text: Text, values: Mapping[str, str]) -> str | None:
    found = []
    for part in text:
        if isinstance(part, Reference):
            if part.key not in values:
                return None
            found.append(values[part.key])
        elif isinstance(part, Hidden):
            if not part.value:
                return None
            found.append(part.value)
        else:
            found.append(part if isinstance(part, str) else "\0")
    return "".join(found)


def _shape(text: Text) -> str:
    """Return a text with a mark in place of each secret, reference and project folder."""
    pieces = (
        p if isinstance(p, str) else "\1" if isinstance(p, ProjectFolder) else "\0" for p in text
    )
    return "".join(pieces)


def _normal(line: Iterable[Text], *, is_versioned: bool) -> tuple[str, ...]:
    words = [_shape(text) for text in line]
    if [word.casefold() for word in words[:2]] in (["cmd", "/c"], ["cmd.exe", "/c"]):
        words = words[2:]
    if not words:
        return ()
    program = PurePath(words[0].replace("\\", "/")).name.removesuffix(".exe").removesuffix(".cmd")
    words[0] = program if program in _BY_NAME else words[0]
    if words[:3] == ["uv", "tool", "run"]:
        words = ["uvx", *words[3:]]
    if words[0] in {"npx", "bunx", "uvx"}:
        at = next((n for n, word in enumerate(words) if n and not word.startswith("-")), len(words))
        options = [word for word in words[1:at] if word not in _NPX_YES]
        named = [word.removesuffix("@latest") for word in words[at : at + 1]]
        if not is_versioned:
            named = [m["name"] if (m := _VERSION.fullmatch(word)) else word for word in named]
        words = [words[0], *options, *named, *words[at + 1 :]]
    return tuple(words)
