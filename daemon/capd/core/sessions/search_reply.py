"""The answer of `tool_search`: what fits, with schemas, and what was switched on and off for it.

A schema is a few hundred tokens. So, unless the model asks for more, the answer has a budget: the
best hit is given in full whatever its size, further hits in full as long as they fit, the rest in
one line each. A tool given in full is switched on. The others can still be called by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from capd.core.tools.short_schema import short_schema
from capd_protos.types import WireName

BUDGET = 1300
"""Characters of all full hits. With twice as many, a day of work costs 6 % more: the other hits are
seldom called (docs/tokens.md)."""
LONGEST_DESCRIPTION = 500
"""Characters of a description if the answer has a budget."""
SUMMARY = 140


@dataclass(frozen=True, slots=True)
class Shown:
    """One hit, by the name that the session uses for it."""

    name: WireName
    definition: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """The hits in the form in which they are written."""

    full: tuple[WireName, ...]
    """The tools whose schema is in the answer; they are switched on."""
    blocks: tuple[str, ...]
    """One a hit, in order."""


def laid_out(hits: Sequence[Shown], detail: str) -> Reply:
    """Return the text of each hit."""
    if detail in {"names", "summary"}:
        return Reply((), tuple(_short(hit, detail) for hit in hits))
    full: list[WireName] = []
    blocks: list[str] = []
    left = BUDGET
    for hit in hits:
        block = _full(hit, is_bounded=detail != "full")
        if detail != "full" and full and len(block) > left:
            blocks.append(_short(hit, "summary"))
            continue
        left -= len(block)
        full.append(hit.name)
        blocks.append(block)
    return Reply(tuple(full), tuple(blocks))


def written(
    reply: Reply,
    *,
    on: Sequence[WireName],
    evicted: Sequence[WireName],
    notes: str,
    is_listed: bool,
    caller: WireName,
) -> str:
    """Return the answer.

    `on` is what is switched on by now, `is_listed` whether the client lists it at once, and
    `caller` the tool that calls what is not listed.
    """
    parts: list[str] = []
    if reply.blocks:
        found = f"{len(reply.blocks)} tool{'s' if len(reply.blocks) > 1 else ''}, the best first."
        parts.append(f"{found} {_how(reply, on, caller, is_listed=is_listed)}")
        parts += reply.blocks
    if evicted:
        parts.append(f"Switched off to make room: {', '.join(evicted)}.")
    if notes:
        parts.append(notes)
    return "\n".join(parts)


def _how(reply: Reply, on: Sequence[WireName], caller: WireName, *, is_listed: bool) -> str:
    if not reply.full:
        return f"None was switched on: call one with {caller}, or get its schema by select:name."
    by = "by name" if is_listed else f"with {caller}"
    if len(on) == len(reply.blocks):
        return f"All are on: call them {by}."
    return f"On, to be called {by}: {', '.join(on)}. Schemas of the others: select:name."


def _full(hit: Shown, *, is_bounded: bool) -> str:
    members = _members(hit.definition)
    description = _text(members.get("description"))
    if is_bounded and len(description) > LONGEST_DESCRIPTION:
        description = description[: LONGEST_DESCRIPTION - 1] + "…"
    schema = msgspec.json.encode(short_schema(members.get("inputSchema", {}))).decode()
    return "\n".join(part for part in (f"## {hit.name}", description, schema) if part)


def _short(hit: Shown, detail: str) -> str:
    if detail == "names":
        return f"- {hit.name}"
    members = _members(hit.definition)
    line = " ".join(_text(members.get("description")).split())
    line = line if len(line) <= SUMMARY else line[: SUMMARY - 1] + "…"
    schema = members.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    arguments = ", ".join(list(properties)[:8]) if isinstance(properties, dict) else ""
    return f"- {hit.name}({arguments}): {line}" if line else f"- {hit.name}({arguments})"


def _members(definition: bytes) -> dict[str, Any]:
    read = msgspec.json.decode(definition)
    return read if isinstance(read, dict) else {}


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
