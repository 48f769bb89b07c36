"""The canonical JSON of a definition, its digest, and differences.

Canonical JSON has every member of the definition, sorted and without spaces. So two definitions
that only differ in order or spacing are equal.
"""

import hashlib
import json
from typing import Any

import msgspec

from capd.core.definitions.hidden_text import visible
from capd_protos.codec import MalformedError

MOST_LINES = 2000
"""The most lines of one difference. Further lines are only counted."""
_MOST_COMPARED = 5000


def canonical(written: bytes) -> bytes:
    """Return the canonical JSON of a definition.

    Raises:
        MalformedError: `written` is not JSON.
    """
    try:
        return msgspec.json.encode(msgspec.json.decode(written), order="sorted")
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise MalformedError(str(error)) from None


def digest(of: bytes) -> str:
    """Return the SHA-256 of canonical JSON."""
    return hashlib.sha256(of).hexdigest()


def laid_out(text: bytes) -> str:
    """Return canonical JSON for a person: a line for each member, hidden characters as escapes."""
    try:
        return "\n".join(_lines(msgspec.json.decode(text) if text else {}, "", ""))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return visible(text.decode("utf-8", "replace"))


def difference(before: bytes, after: bytes, *, named: str) -> str:
    """Return the unified diff of two definitions in canonical JSON.

    `named` is the tool's name, for the head of the diff.
    """
    import difflib  # noqa: PLC0415 - a daemon compares only when a person asks

    lines = list(
        difflib.unified_diff(
            laid_out(before).splitlines()[:_MOST_COMPARED] if before else [],
            laid_out(after).splitlines()[:_MOST_COMPARED] if after else [],
            f"{named} (trusted)",
            f"{named} (listed)",
            lineterm="",
        )
    )
    more = len(lines) - MOST_LINES
    if more > 0:
        lines = [*lines[:MOST_LINES], f"... {more} more lines"]
    return "\n".join(lines)


def _lines(value: Any, before: str, after: str, indent: str = "") -> list[str]:
    """Return a JSON value as indented lines; a text with line breaks takes several lines.

    `before` is put before the value, such as its key, and `after` after it, such as a comma.
    """
    if isinstance(value, dict) and value:
        items = [(f"{_visible_json(key)}: ", value[key]) for key in sorted(value)]
        return _nested(items, f"{indent}{before}{{", f"{indent}}}{after}", indent)
    if isinstance(value, list) and value:
        items = [("", each) for each in value]
        return _nested(items, f"{indent}{before}[", f"{indent}]{after}", indent)
    if isinstance(value, str) and "\n" in value.strip("\n"):
        texts = [_visible_json(each) for each in value.splitlines(keepends=True)]
        first = f"{indent}{before}{texts[0]}"
        inner = [f"{indent}    {each}" for each in texts[1:-1]]
        return [first, *inner, f"{indent}    {texts[-1]}{after}"]
    return [f"{indent}{before}{_visible_json(value)}{after}"]


def _nested(items: list[tuple[str, Any]], opened: str, closed: str, indent: str) -> list[str]:
    lines = [opened]
    for at, (name, each) in enumerate(items):
        comma = "," if at < len(items) - 1 else ""
        lines += _lines(each, name, comma, f"{indent}  ")
    return [*lines, closed]


def _visible_json(value: Any) -> str:
    # JSON escapes line ends and controls; `visible` spells out what a terminal would not show.
    return visible(json.dumps(value, ensure_ascii=False))
