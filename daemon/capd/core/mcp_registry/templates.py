"""Texts of a `server.json` with places for values: `postgres://{host}/{name}`.

    Slot("host")                      a place for the value of an input
    ("postgres://", Slot("host"))     a template: literal parts and slots

Publishers write the literal parts. One that contains `{{` is refused: capd replaces `{{ENV:KEY}}`
by a secret, so a publisher could get a secret that was stored for another server.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote

from capd.core.lazy_patterns import lazy_pattern
from capd.core.mcp_registry.server_json import EntryError

_BRACES = lazy_pattern(r"\{([A-Za-z0-9_.-]+)\}")
SECRET = lazy_pattern(r"\{\{ENV:[A-Za-z_][A-Za-z0-9_]*\}\}")
"""The placeholder of a stored secret in capd's own definitions."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a text for the value of one input."""

    name: str


Template: TypeAlias = tuple[str | Slot, ...]


def plain(value: Any) -> str:
    """Return a scalar of a `server.json` as text; empty for any other value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def literal(text: str, what: str) -> str:
    """Return a publisher's text unchanged, if it may be a literal part of a template.

    `what` names the text in errors.

    Raises:
        EntryError: `text` contains `{{`, a line break or another unprintable character.
    """
    if "{{" in text:
        raise EntryError(f"has `{{{{` in {what}, which capd would fill in")
    if any(not each.isprintable() for each in text):
        raise EntryError(f"has an invisible character in {what}")
    return text


def template(text: str, names: Mapping[str, str], what: str) -> Template:
    """Return the template of a text such as `postgres://{host}/{name}`.

    `names` has, for each variable, the name of the input that gives its value. An identifier in
    braces that is no variable stays unchanged, as the schema says. `what` names the text in errors.

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
    """Return the names of the inputs whose values a template contains."""
    return tuple(part.name for part in text if isinstance(part, Slot))


def filled(text: Template, values: Mapping[str, str]) -> str | None:
    """Return the text of a template with the values filled in; None if one of them is missing.

    Raises:
        EntryError: literal parts and values together form a `{{` that none of them contains.
    """
    if any(name not in values for name in slots(text)):
        return None
    words = [part if isinstance(part, str) else values[part.name] for part in text]
    # A value that a person gave may have a placeholder of its own.
    if "{{" in "".join("?" if "{{" in word else word for word in words):
        raise EntryError("makes up `{{` of several parts, which capd would fill in")
    return "".join(words)


def filled_url(text: Template, values: Mapping[str, str]) -> str | None:
    """Return the URL of a template with its values percent-encoded.

    So no value changes another part of the URL. A value is not encoded if the URL begins with it,
    or if it is a secret's placeholder. The result is None if a value is missing.

    Raises:
        EntryError: as in `filled`.
    """
    encoded = {
        name: value
        if (at == 0 and text[:1] == (Slot(name),)) or SECRET.fullmatch(value)
        else quote(value, safe="")
        for at, name in enumerate(slots(text))
        if (value := values.get(name)) is not None
    }
    return filled(text, encoded)
