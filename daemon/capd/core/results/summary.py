"""Writes the text at the head of a shortened result: what it is, what is missing, how to read that.

Keys and paths of the result are quoted as JSON, so that no text of a server can look like capd's
own sentences (docs/design/hostile-servers.md).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.results.json_cut import Omission, Path, encoded_width
from capd_protos.codec import JsonCodec, MalformedError

_KEYS = 10
_KEY_CHARACTERS = 60
_MOST_LINES = 12
_PLAIN = lazy_pattern(r"[A-Za-z_]\w{0,59}\Z", re.ASCII)
_LIST: JsonCodec[list[msgspec.Raw]] = JsonCodec(list[msgspec.Raw])
_MEMBERS: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])
_NAMES = {b"{": "object", b"[": "list", b'"': "text", b"t": "bool", b"f": "bool", b"n": "null"}


@dataclass(slots=True)
class SummaryFacts:
    """The facts about a stored result from which the summary for the model is written."""

    tool: str
    handle: str
    reader: str
    """The name under which the client knows the tool that reads stored results."""
    characters: int
    whole: str
    """A description of the whole result, in one line."""
    beyond_bytes: int = 0
    """How many bytes of the result were not examined."""
    missing: list[str] = field(default_factory=list)
    """Lines on what is left out."""
    example: str = ""
    """The arguments with which the tool reads the next part, as JSON; empty if there is none."""
    remark: str = ""
    """A sentence about the structured content; empty for none."""
    hints: Sequence[str] = ()
    """Paths and URLs in the parts that are left out."""


def summary(facts: SummaryFacts, room: int) -> str:
    """Return the text of the summary: its first line, and as many others as fit into `room`."""
    size = f"{facts.characters:,} characters"
    if facts.beyond_bytes:
        size = f"{facts.beyond_bytes + facts.characters:,} bytes"
    lines = [
        (
            f"[capd] The result of {facts.tool} is cut: {size} is too long to show. Nothing is "
            f'lost: {facts.reader} reads all of it, with handle "{facts.handle}" and one of '
            "offset, query (words) or json_path."
        ),
    ]
    if facts.example:
        lines.append(f"For what comes next: {facts.example}")
    if facts.remark:
        lines.append(facts.remark)
    lines.append(f"The whole is {facts.whole}.")
    if facts.missing:
        lines += ["Left out:", *(f"- {each}" for each in facts.missing)]
    kept: list[str] = []
    room -= 2
    for line in lines:
        room -= encoded_width(line) + 2
        if room < 0 and kept:
            return "\n".join(kept)
        kept.append(line)
    return "\n".join(kept + _hint_lines(facts.hints, room))


def _hint_lines(hints: Sequence[str], room: int) -> list[str]:
    head = "Paths and URLs in it that are not shown:"
    lines = [head]
    room -= len(head) + 2
    for hint in hints:
        room -= encoded_width(hint) + 2
        if room < 0:
            break
        lines.append(hint)
    return lines if len(lines) > 1 else []


def json_path(path: Path) -> str:
    """Return a path as a JSONPath expression (RFC 9535)."""
    return "$" + "".join(_step(step) for step in path)


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _PLAIN.match(step):
        return f".{step}"
    return "[" + msgspec.json.encode(step).decode() + "]"


def described(data: bytes) -> str:
    """Return a description of a JSON value: type, number of keys or items, and first keys."""
    try:
        if data[:1] == b"[":
            items = _LIST.decode(data)
            each = f", the first of which is {_short(bytes(items[0]))}" if items else ""
            return f"a JSON list of {len(items):,} items{each}"
        if data[:1] == b"{":
            members = _MEMBERS.decode(data)
            shown = [f"{_key(key)} ({_short(bytes(v))})" for key, v in _first(members)]
            more = ", …" if len(members) > _KEYS else ""
            return f"a JSON object with {len(members):,} keys: {', '.join(shown)}{more}"
    except MalformedError:
        pass
    return "a JSON value"


def described_text(text: str) -> str:
    """Return a description of a text: its lines and characters."""
    lines = text.count("\n") + 1
    return f"text of {lines:,} line{'' if lines == 1 else 's'}, {len(text):,} characters"


def _first(members: dict[str, msgspec.Raw]) -> list[tuple[str, msgspec.Raw]]:
    return list(members.items())[:_KEYS]


def _key(key: str) -> str:
    cut = key if len(key) <= _KEY_CHARACTERS else key[:_KEY_CHARACTERS] + "…"
    return msgspec.json.encode(cut).decode()


def _short(data: bytes) -> str:
    match data[:1]:
        case b"[":
            return f"list of {len(_LIST.decode(data)):,}"
        case b"{":
            members = _MEMBERS.decode(data)
            keys = ", ".join(_key(key) for key in list(members)[:_KEYS])
            more = ", …" if len(members) > _KEYS else ""
            return f"object with {keys}{more}" if keys else "empty object"
        case kind:
            return _NAMES.get(kind, "number")


def missing_lines(omissions: Sequence[Omission], of: str = "") -> list[str]:
    """Return lines on what was left out. Places that differ only in list indexes share a line.

    `of` is put before each line.
    """
    found: dict[tuple[Path, str], list[Omission]] = {}
    for each in omissions:
        alike = tuple("*" if isinstance(step, int) else step for step in each.path)
        found.setdefault((alike, each.what), []).append(each)
    lines = [of + _line(places) for places in found.values()]
    more = len(lines) - _MOST_LINES
    return lines[:_MOST_LINES] + ([f"and at {more:,} more kinds of places"] if more > 0 else [])


def _line(places: list[Omission]) -> str:
    first = places[0]
    if len(places) == 1:
        where, what = json_path(first.path), first.what
        if what == "levels":
            return f"{where}: what is below it"
        left = first.whole - first.kept
        return f"{where}: {left:,} of {first.whole:,} {what}, the first {first.kept:,} are here"
    where = re.sub(r"\[\d+\]", "[*]", json_path(first.path))
    left = sum(each.whole - each.kept for each in places)
    return f"{where}: {left:,} {first.what} in {len(places):,} places"


def next_read(handle: str, omissions: Sequence[Omission], part: str) -> str:
    """Return the arguments with which `result_read` reads the first omitted part, as JSON.

    The result is empty if there is no such part.
    """
    chosen = f',"part":"{part}"' if part else ""
    for each in sorted(omissions, key=lambda each: len(each.path)):
        if each.what == "items":
            path = f"{json_path(each.path)}[{each.kept}:{each.kept + max(each.kept, 10)}]"
        elif each.what in {"characters", "members"} and each.path:
            path = json_path(each.path)
        else:
            continue
        return f'{{"handle":"{handle}","json_path":{msgspec.json.encode(path).decode()}{chosen}}}'
    return ""
