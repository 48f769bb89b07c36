"""A user's own words, without what they pasted or what a program added around them.

Two modes. `clean` is nesting-aware and drops fenced code and log paste as well. `strip_tags`
is the published rule to the letter (95-ancestors, "The strip rule"): at each `<name ...>` with
a literal `</name>` anywhere later, everything to the end of the first such close tag goes.
"""

import re

MIN_CHARACTERS = 8
"""Fewer non-space characters than this are too short to route (20-routing)."""

_TAG = re.compile(r"<([A-Za-z0-9_-]+)")
_FENCE = re.compile(
    r"^(?P<fence>```+|~~~+)[^\n]*\n.*?(?:^(?P=fence)[^\S\n]*$|\Z)", re.MULTILINE | re.DOTALL
)
_TRACEBACK = re.compile(
    r"^[^\S\n]*Traceback \(most recent call last\):\n(?:[^\S\n]+.*\n?)*(?:^[\w.]+(?:: .*)?$\n?)?",
    re.MULTILINE,
)
_LOG_LINE = re.compile(
    r"""^[^\S\n]*(?:
        \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d           # 2026-11-22 10:00
      | \[?(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d      # 10:00:00
      | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?[:\s]
      | at\ .+[(:]\S*:\d+                         # a frame of a JavaScript or Java trace
      | File\ ".+",\ line\ \d+                    # one of a Python trace
    ).*$\n?""",
    re.MULTILINE | re.VERBOSE,
)

_SYSTEM_STARTS = (
    "<system-note",
    "<system-reminder",
    "<system_reminder",
    "<instructions",
    "<skill name=",
    "<local-command-",
    "<command-name>",
    "<command-message>",
    "<tool_result",
    "<task-notification",
    "<continuation",
    "[Request interrupted",
    "This session is being continued from a previous conversation",
)


def is_system_content(text: str) -> bool:
    """Tell whether a message is a program's and not the user's own words."""
    return text.lstrip().startswith(_SYSTEM_STARTS)


def is_too_short(cleaned: str) -> bool:
    """Tell whether too little is left to decide on."""
    return sum(not character.isspace() for character in cleaned) < MIN_CHARACTERS


def clean(text: str) -> str:
    """Return `text` without fenced code, tagged blocks, stack traces and log lines."""
    text = _FENCE.sub("", text)
    text = _without_blocks(text)
    text = _TRACEBACK.sub("", text)
    return _LOG_LINE.sub("", text)


def strip_tags(text: str) -> str:
    """Return `text` by the published strip rule: not nesting-aware, tagged blocks only."""
    kept: list[str] = []
    at = 0
    while (start := text.find("<", at)) != -1:
        tag = _TAG.match(text, start)
        end = text.find(f"</{tag[1]}>", tag.end()) if tag else -1
        if tag is None or end == -1:
            kept.append(text[at : start + 1])
            at = start + 1
        else:
            kept.append(text[at:start])
            at = end + len(tag[1]) + 3
    kept.append(text[at:])
    return "".join(kept)


def _without_blocks(text: str) -> str:
    """Drop balanced tagged blocks; an opening tag without its close is kept as text."""
    kept: list[str] = []
    at = 0
    unclosed: set[str] = set()
    while (start := text.find("<", at)) != -1:
        tag = _TAG.match(text, start)
        end = -1
        if tag is not None and tag[1] not in unclosed:
            end = _end_of_block(text, tag[1], tag.end())
            if end == -1 and f"</{tag[1]}>" not in text[tag.end() :]:
                # Never looked for again: a message of ten thousand `<a` stays linear.
                unclosed.add(tag[1])
        if end == -1:
            kept.append(text[at : start + 1])
            at = start + 1
        else:
            kept.append(text[at:start])
            at = end
    kept.append(text[at:])
    return "".join(kept)


def _end_of_block(text: str, name: str, after_name: int) -> int:
    """Return where the block opened before `after_name` ends, or -1 where nothing closes it."""
    close = f"</{name}>"
    opening = re.compile(rf"<{re.escape(name)}(?=[\s>])")
    depth = 1
    at = after_name
    last_close = -1
    while depth:
        closing = text.find(close, at)
        if closing == -1:
            # Unbalanced: the last close tag is as far as the block can reach.
            return last_close
        depth += sum(1 for _ in opening.finditer(text, at, closing)) - 1
        at = last_close = closing + len(close)
    return at
