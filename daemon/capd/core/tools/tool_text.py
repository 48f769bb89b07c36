"""The searchable texts of a tool, made from its definition.

Servers write definitions, so these may be long, malformed or hostile. Every part is cut to a limit,
and a part with a wrong type is left out.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import ServerName, ToolDefinition, ToolName, WireName

MOST_CHARACTERS = 2000
"""The most characters of each part. The embedding model reads 256 tokens, which are about 1,200
characters of prose."""
MOST_ARGUMENTS = 64

_BOUNDARY = lazy_pattern(r"[\W_]+|(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_FOLDED = str.maketrans("", "", "-_")


@dataclass(frozen=True, slots=True)
class Tool:
    """The parts of one tool that are searched."""

    wire_name: WireName
    name: ToolName
    server: ServerName | str
    title: str = ""
    description: str = ""
    arguments: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    """The names of the capabilities that grant the tool."""

    @property
    def text(self) -> str:
        """The text that is embedded: `SERVER NAME (TITLE): DESCRIPTION`."""
        named = " ".join(part for part in (spelled(self.server), spelled(self.name)) if part)
        title = "" if folded(self.title) == folded(named.replace(" ", "")) else self.title.strip()
        head = f"{named} ({title})" if title else named
        return f"{head}: {self.description}" if self.description else head

    @property
    def words(self) -> str:
        """The text that is searched by words: all parts, each once."""
        return " ".join(
            (
                self.server,
                self.name,
                self.title,
                self.description,
                *self.arguments,
                *self.capabilities,
            )
        )


def tool(
    definition: ToolDefinition,
    server: ServerName,
    wire_name: WireName,
    capabilities: Iterable[str] = (),
) -> Tool:
    """Return the searchable parts of a definition; only the names if it is not readable."""
    try:
        read = msgspec.json.decode(definition.json)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        read = {}
    return described(read, definition.shown_name, server, wire_name, capabilities)


def described(
    read: Any, name: ToolName, server: str, wire_name: WireName, capabilities: Iterable[str] = ()
) -> Tool:
    """Return the searchable parts of a tool's definition that was decoded already."""
    fields = read if isinstance(read, dict) else {}
    annotations = fields.get("annotations")
    title = _text(fields.get("title"))
    if not title and isinstance(annotations, dict):
        title = _text(annotations.get("title"))
    schema = fields.get("inputSchema", fields.get("parameters"))
    return Tool(
        wire_name,
        name,
        server,
        title,
        _text(fields.get("description")),
        _argument_names(schema),
        tuple(capabilities),
    )


def spelled(name: str) -> str:
    """Return a name as separate words in lower case: `getHTTPStatus` gives `get http status`."""
    return " ".join(_BOUNDARY.sub(" ", name).lower().split())


def folded(name: str) -> str:
    """Return a name without differences in case, hyphens and underscores, to compare names."""
    return unicodedata.normalize("NFKC", name).casefold().translate(_FOLDED)


def texts(tools: Sequence[Tool]) -> list[str]:
    """Return the texts of `tools` to embed, in order."""
    return [tool.text for tool in tools]


def _text(value: Any) -> str:
    return " ".join(value[:MOST_CHARACTERS].split()) if isinstance(value, str) else ""


def _argument_names(schema: Any) -> tuple[str, ...]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = properties if isinstance(properties, dict) else {}
    return tuple(_text(name) for name in list(names)[:MOST_ARGUMENTS])
