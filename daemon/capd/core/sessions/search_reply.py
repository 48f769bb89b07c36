"""The answer of `tool_search`: how to call the tools that fit, and what was switched on or off.

A schema has a few hundred tokens, a signature about thirty. So each hit is a call card: its
signature and a short description. Only the best hit is given with its schema, and only if this is
short. `detail="full"` and `select:` give every schema. A tool is switched on if the answer says how
to call it. The other hits can still be called by name.

Definitions are written by strangers. Only capd's own lines begin in the first column: further lines
of a description are indented, and everything else of a definition is on one line. Otherwise a
description could contain a line that looks like the card of another server's tool.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import msgspec

from capd.core.index.token_costs import one_line
from capd.core.scripts.stubs import described_stubs, tool_functions
from capd.core.sessions.own_tools import echo
from capd.core.sessions.search_tools import STUBS
from capd.core.sessions.skill_prompts import PREFIX as SKILL_PREFIX
from capd.core.tools.call_cards import argument_name, call_card
from capd.core.tools.read_only import is_read_only
from capd.core.tools.short_schema import short_schema
from capd_protos.types import WireName

BEST_HIT = 525
"""The best hit is given with its schema if that takes at most this many characters, which are about
150 tokens."""
MOST_DESCRIPTION = 110
"""The most characters of a description in a call card of a search. In a turn there is less room."""
SUMMARY = 140
_MOST_NAMES = 8
"""How many arguments of a tool `detail="summary"` names."""
MOST_SKILLS = 3


@dataclass(frozen=True, slots=True)
class ShownHit:
    """One found tool, with the name under which the session's client knows it."""

    name: WireName
    definition: bytes
    server: str = ""
    tool: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """The texts about the found tools, and the tools whose text suffices for a call."""

    full: tuple[WireName, ...]
    """The tools whose text suffices for a call; they are switched on."""
    blocks: tuple[str, ...]
    """The text of each hit, in the order of the hits."""
    read_only: frozenset[WireName] = frozenset()
    """Those of `full` whose definitions say that they change nothing."""


def lay_out(hits: Sequence[ShownHit], detail: str) -> Reply:
    """Return the text of each found tool for the answer of `tool_search`.

    `detail` says how much the texts tell: it is empty, one of `DETAILS`, or `STUBS`.
    """
    reply = _laid_out(hits, detail)
    read_only = (hit.name for hit in hits if is_read_only(hit.definition))
    return replace(reply, read_only=frozenset(reply.full).intersection(read_only))


def _laid_out(hits: Sequence[ShownHit], detail: str) -> Reply:
    if detail in {"names", "summary"}:
        return Reply((), tuple(_short(hit, detail) for hit in hits))
    if detail == "full":
        return Reply(tuple(hit.name for hit in hits), tuple(_full(hit) for hit in hits))
    if detail == STUBS:
        functions = tool_functions((h.server, h.tool, h.name, h.definition) for h in hits)
        blocks = [described_stubs([function])[0] for function in functions]
        return Reply(tuple(hit.name for hit in hits), tuple(blocks))
    callable_: list[WireName] = []
    blocks = []
    for hit in hits:
        block = _full(hit) if not blocks else ""
        if block and len(block) <= BEST_HIT:
            callable_.append(hit.name)
            blocks.append(block)
            continue
        card = call_card(hit.name, hit.definition, MOST_DESCRIPTION)
        blocks.append(f"- {card.line}")
        if card.is_callable:
            callable_.append(hit.name)
    return Reply(tuple(callable_), tuple(blocks))


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """The answer to one question of a call of `tool_search`, before it is written as text."""

    question: str
    reply: Reply
    notes: str
    """What is missing, and why; empty if nothing is."""


@dataclass(frozen=True, slots=True)
class OwnNames:
    """The names under which the client knows those of capd's own tools that an answer refers to."""

    caller: WireName
    """The tool that calls tools that are not listed."""
    enabler: WireName
    """The tool that switches capabilities on, and uses skills."""
    read_only_caller: str = ""
    """The tool that calls read-only tools, in a client that asks its user about each tool."""


def reply_text(
    answers: Sequence[QuestionAnswer],
    *,
    on: Sequence[WireName],
    evicted: Sequence[WireName],
    skills: Mapping[WireName, str],
    is_listed: bool,
    names: OwnNames,
    beside: str = "",
) -> str:
    """Return the whole text of an answer of `tool_search`, for the model.

    `on` are the tools that the search has switched on, and `is_listed` says whether the model sees
    them on its list before its next answer. `evicted` are the tools that were switched off to make
    room. `skills` are the descriptions of skills that fit, by the names of their prompts. `beside`
    has the signatures of further tools.
    """
    parts: list[str] = []
    found = sum(len(answer.reply.blocks) for answer in answers)
    if found:
        many = f"{found} tool{'s' if found > 1 else ''}, the best first."
        parts.append(f"{many} {_how(answers, on, found, names, is_listed=is_listed)}")
    for answer in answers:
        if len(answers) > 1:
            parts.append(f"{echo(answer.question)}:")
        parts += answer.reply.blocks
        parts += [answer.notes] if answer.notes else []
    parts += [beside] if beside else []
    for prompt, description in list(skills.items())[:MOST_SKILLS]:
        arguments = msgspec.json.encode({"action": "enable", "name": f"{SKILL_PREFIX}{prompt}"})
        line = one_line(description)[:SUMMARY]
        parts.append(f"Skill {prompt}: {line} ({names.enabler} {arguments.decode()})")
    if evicted:
        parts.append(f"Switched off to make room: {', '.join(evicted)}.")
    return "\n".join(parts)


def _how(
    answers: Sequence[QuestionAnswer],
    on: Sequence[WireName],
    found: int,
    names: OwnNames,
    *,
    is_listed: bool,
) -> str:
    caller = names.caller
    if not any(answer.reply.full for answer in answers):
        return f"None was switched on: call one with {caller}, or get its schema by select:name."
    read_only: list[WireName] = []
    if names.read_only_caller and not is_listed:
        marked = frozenset[WireName]().union(*(answer.reply.read_only for answer in answers))
        read_only = [name for name in on if name in marked]
    if read_only and len(read_only) == len(on):
        caller, read_only = WireName(names.read_only_caller), []
    by = "by name" if is_listed else f"with {caller}"
    apart = f" These with {names.read_only_caller}: {', '.join(read_only)}." if read_only else ""
    if len(on) == found:
        return f"All are on: call them {by}.{apart}"
    return f"On, to be called {by}: {', '.join(on)}.{apart} Whole schemas: select:name."


def _full(hit: ShownHit) -> str:
    members = _members(hit.definition)
    description = "\n  ".join(_text(members.get("description")).splitlines())
    schema = _on_one_line(msgspec.json.encode(short_schema(members.get("inputSchema", {}))))
    return "\n".join(part for part in (f"## {hit.name}", description, schema) if part)


def _short(hit: ShownHit, detail: str) -> str:
    if detail == "names":
        return f"- {hit.name}"
    members = _members(hit.definition)
    line = one_line(_text(members.get("description"))[: 8 * SUMMARY])
    line = line if len(line) <= SUMMARY else line[: SUMMARY - 1] + "…"
    schema = members.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    names = islice(properties, _MOST_NAMES) if isinstance(properties, dict) else ()
    arguments = ", ".join(map(argument_name, names))
    return f"- {hit.name}({arguments}): {line}" if line else f"- {hit.name}({arguments})"


def _members(definition: bytes) -> dict[str, Any]:
    read = msgspec.json.decode(definition)
    return read if isinstance(read, dict) else {}


def _on_one_line(written: bytes) -> str:
    """Return JSON with unprintable characters escaped: U+2028, for one, could begin a line."""
    text = written.decode()
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
