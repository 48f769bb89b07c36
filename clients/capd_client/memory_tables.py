"""What a person reads of memories, and of what failed calls suggest."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from capd_client import tables

_LONGEST = 80


def print_memories(memories: Sequence[Mapping[str, Any]]) -> None:
    """Print every memory with what came of it."""
    columns = (
        *("memory", "kind", "of", "refuses"),
        *("tokens", "told", "refused", "worked", "what it says"),
    )
    rows = [
        (
            _name(each),
            each.get("kind"),
            each.get("tool") or each.get("capability"),
            "yes" if each.get("refuses") else "",
            each.get("tokens"),
            each.get("told"),
            each.get("refused"),
            each.get("worked"),
            _short(each.get("content")),
        )
        for each in memories
    ]
    tables.print_rows(columns, rows)


def print_suggestions(suggestions: Sequence[Mapping[str, Any]]) -> None:
    """Print every suggestion under its number."""
    if not suggestions:
        tables.say("Nothing is suggested: no call has failed and then worked with other arguments.")
        return
    for each in suggestions:
        count = each.get("count", 1)
        times = f"{count} times" if count != 1 else "once"
        tables.say(f"{each.get('number')}. {each.get('tool')}, {times}: {each.get('content')}")
        if each.get("arguments"):
            tables.say(f"   matches {json.dumps(each['arguments'])}")
    tables.say("Write one down: capd memory suggest --accept N (--refuse refuses such calls).")


def _name(memory: Mapping[str, Any]) -> str:
    """Return a memory as it is named: the user's own without their folder."""
    tap = memory.get("tap")
    name = str(memory.get("name"))
    return name if tap == "~" else f"{tap}/{name}"


def _short(content: Any) -> str:
    line = " ".join(str(content or "").split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
