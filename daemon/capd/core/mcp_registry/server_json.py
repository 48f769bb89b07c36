"""Parses entries of an MCP registry, in the format of its API v0.1: a `server.json` and metadata.

Publishers write the entries, so limits are enforced first: on the bytes of an entry, and on the
length of each list and text. Unknown members are ignored. The schema is
https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import msgspec

from capd.core.errors import CapdError
from capd.core.lazy_patterns import lazy_pattern

MOST_ENTRY_BYTES = 256 << 10
MOST_ITEMS = 64
"""The most items of each list in an entry: packages, remotes, arguments, choices."""
LONGEST_TEXT = 4096
LONGEST_DESCRIPTION = 300
LONGEST_NAME = 200

Status = Literal["active", "deprecated", "deleted"]
_STATUSES: dict[str, Status] = {each: each for each in get_args(Status)}
OFFICIAL = "io.modelcontextprotocol.registry/official"
_NAME = lazy_pattern(r"[a-zA-Z0-9][a-zA-Z0-9.-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_VERSION = lazy_pattern(r"[A-Za-z0-9][\w.+!-]*")


class EntryError(CapdError):
    """An entry cannot be used. The text continues a sentence that begins with the entry's name."""


class Input(msgspec.Struct, rename="camel"):
    """A value of an entry: one that a person gives, or one that the entry fixes (`value`)."""

    description: str | None = None
    is_required: bool | None = False
    is_secret: bool | None = False
    format: str | None = "string"
    value: Any = None
    default: Any = None
    placeholder: str | None = None
    choices: list[Any] | None = None


class TemplateInput(Input):
    """An input whose fixed value may contain other inputs by name, in curly braces."""

    variables: dict[str, Input] | None = None


class Argument(TemplateInput):
    """One argument of a command line: a word, or a flag and its value."""

    type: str = "positional"
    name: str | None = None
    value_hint: str | None = None
    is_repeated: bool | None = False


class KeyValue(TemplateInput):
    """A named value: a variable of the environment, or an HTTP header."""

    name: str = ""


class Transport(msgspec.Struct, rename="camel"):
    """How a client reaches a server: the transport of a package, or a remote server's URL."""

    type: str = "stdio"
    url: str | None = None
    headers: list[KeyValue] | None = None
    variables: dict[str, Input] | None = None


class Package(msgspec.Struct, rename="camel"):
    """A package on npm, PyPI or an image registry that contains the server."""

    registry_type: str
    identifier: str
    version: str | None = None
    registry_base_url: str | None = None
    file_sha256: str | None = None
    runtime_hint: str | None = None
    transport: Transport = msgspec.field(default_factory=Transport)
    runtime_arguments: list[Argument] | None = None
    package_arguments: list[Argument] | None = None
    environment_variables: list[KeyValue] | None = None


class Repository(msgspec.Struct):
    """The repository of a server's source code."""

    url: str | None = None


class Server(msgspec.Struct, rename="camel"):
    """The members of a `server.json` that capd reads."""

    name: str
    version: str = ""
    description: str | None = None
    title: str | None = None
    website_url: str | None = None
    repository: Repository | None = None
    packages: list[Package] | None = None
    remotes: list[Transport] | None = None
    status: str | None = None


class Official(msgspec.Struct, rename="camel"):
    """What the registry adds to an entry: its status, and whether it is the latest version."""

    status: str | None = None
    status_message: str | None = None
    updated_at: str | None = None
    is_latest: bool | None = None


class _Meta(msgspec.Struct):
    official: Official | None = msgspec.field(default=None, name=OFFICIAL)


class _Response(msgspec.Struct):
    server: Server
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


class _Metadata(msgspec.Struct, rename="camel"):
    next_cursor: str | None = None


class _Page(msgspec.Struct):
    servers: list[msgspec.Raw] | None = None
    metadata: _Metadata | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a server in an MCP registry, with what the registry says about it."""

    server: Server
    status: Status = "active"
    status_message: str = ""
    updated_at: str = ""

    @property
    def namespace(self) -> str:
        """The publisher, as verified by the registry: a domain or a GitHub account."""
        return self.server.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list of entries."""

    entries: tuple[Entry, ...]
    next_cursor: str
    unreadable: int = 0
    """How many entries of the page were left out because they are not valid."""


def is_name(text: str) -> bool:
    """Tell whether a text is a valid name of an entry: `namespace/name`."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def is_version(text: str) -> bool:
    """Tell whether a text is one exact version: not a range, and not `latest`."""
    is_text = len(text) <= LONGEST_NAME and _VERSION.fullmatch(text) is not None
    return is_text and text != "latest"


def read_page(data: bytes) -> Page:
    """Return one page of `GET /v0.1/servers`.

    Raises:
        EntryError: `data` is not such a page.
    """
    try:
        page = msgspec.json.decode(data, type=_Page)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EntryError(f"is no page of a registry: {error}") from None
    found, unreadable = [], 0
    for raw in page.servers or ():
        try:
            found.append(read_entry(bytes(raw)))
        except EntryError:
            unreadable += 1
    cursor = page.metadata.next_cursor if page.metadata is not None else None
    return Page(tuple(found), cursor or "", unreadable)


def read_entry(data: bytes) -> Entry:
    """Return one entry: `{"server": ..., "_meta": ...}`.

    Raises:
        EntryError: the entry is too large, or does not follow the schema.
    """
    if len(data) > MOST_ENTRY_BYTES:
        raise EntryError(f"has more than {MOST_ENTRY_BYTES} bytes")
    try:
        read = msgspec.json.decode(data, type=_Response)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise EntryError(f"is not as the schema has it: {error}") from None
    server = read.server
    if not is_name(server.name):
        raise EntryError("has a name that is not `namespace/name`")
    if not is_version(server.version):
        raise EntryError("has a version that is not one exact version")
    _check_bounds(server)
    official = (read.meta.official if read.meta is not None else None) or Official()
    status = _STATUSES.get(official.status or server.status or "active", "active")
    return Entry(
        server,
        status,
        (official.status_message or "")[:LONGEST_DESCRIPTION],
        official.updated_at or "",
    )


def _check_bounds(server: Server) -> None:
    for items in _lists(server):
        if len(items) > MOST_ITEMS:
            raise EntryError(f"has a list of more than {MOST_ITEMS} items")
    for text in _texts(msgspec.to_builtins(server)):
        if len(text) > LONGEST_TEXT:
            raise EntryError(f"has a text of more than {LONGEST_TEXT} characters")
        if "\0" in text:
            raise EntryError("has a NUL in a text")


def _lists(server: Server) -> Iterator[Sequence[object]]:
    yield server.packages or ()
    yield server.remotes or ()
    for package in server.packages or ():
        arguments = [*(package.runtime_arguments or ()), *(package.package_arguments or ())]
        yield arguments
        yield package.environment_variables or ()
        for each in (*arguments, *(package.environment_variables or ())):
            yield each.choices or ()
            yield list(each.variables or ())
    for remote in server.remotes or ():
        yield remote.headers or ()
        yield list(remote.variables or ())


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in decoded JSON, whose depth the decoder has limited."""
    todo = [value]
    while todo:
        each = todo.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            todo += [*each, *each.values()]
        elif isinstance(each, list):
            todo += each
