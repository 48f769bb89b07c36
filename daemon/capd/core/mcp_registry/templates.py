"""Texts of a `server.json` with places for values: `postgres://{host}/{name}`.

    Slot("host")                      a place for the value of an input
    ("postgres://", Slot("host"))     a template: literal parts and slots

A literal part was written by the publisher. If it contains `{{`, it is refused: capd fills in
secrets there, so a publisher could get a secret that was stored for another server.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from capd.core.mcp_registry.server_json import EntryError

_BRACES = re.compile(r"\{([A-Za-z0-9_.-]+)\}")
SECRET = re.compile(r"\{\{ENV:[A-Za-z_][A-Za-z0-9_]*\}\}")
"""How capd's own definitions name a stored secret."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for the value of one input."""

    name: str


Template: TypeAlias = tuple[str | Slot, ...]


def plain(value: Any) -> str:
    """Return a value in a `server.json` as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def literal(text: str, what: str) -> str:
    """Return a publisher's text, if it may be used as a literal.

    Raises:
        EntryError: it contains `{{` or a line break.
    """
    if "{{" in text:
        raise EntryError(f"has `{{{{` in {what}, which capd would fill in")
    if any(not each.isprintable() for each in text):
        raise EntryError(f"has an invisible character in {what}")
    return text


def template(text: str, names: Mapping[str, str], what: str) -> Template:
    """Return the template of a fixed value; `names` are the slots of its variables, by name.

    An identifier in braces that is not a variable stays unchanged, as the schema says.

    Raises:
        EntryError: as in `literal`.
    """
    literal(text, what)
    parts: list[str | Slot] = []
    at = 0
    for match in _BRACES.finditer(text):
        if match[1] in names:
            parts += [text[at : match.start()], Slot(names[match[1]])]
            at = match.end()
    parts.append(text[at:])
    return tuple(part for part in parts if part != "")


def slots(text: Template) -> tuple[str, ...]:
    """Return the names of the slots of a template."""
    return tuple(part.name for part in text if isinstance(part, Slot))


def filled(text: Template, values: Mapping[str, str]) -> str | None:
    """Return the text with its values; None if one of them is missing."""
    if any(name not in values for name in slots(text)):
        return None
    return "".join(part if isinstance(part, str) else values[part.name] for part in text)


def filled_url(text: Template, values: Mapping[str, str]) -> str | None:
    """Return a URL with its values; no value can change another part of the URL.

    If the URL begins with a slot, the user chooses its beginning.
    """
    encoded = {
        name: value
        if (at == 0 and text[:1] == (Slot(name),)) or SECRET.fullmatch(value)
        else quote(value, safe="")
        for at, name in enumerate(slots(text))
        if (value := values.get(name)) is not None
    }
    return filled(text, encoded)
