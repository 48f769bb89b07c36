"""Extracts the user's own words from a message: without pasted text and what a program added.

Tagged blocks are removed, nested ones as a whole, and also fenced code, stack traces and log lines.
"""

import re
from typing import Literal, TypeAlias

from capd.core.lazy_patterns import lazy_pattern

MIN_CHARACTERS = 8
"""A message with fewer non-space characters is too short to route (docs/design/routing.md)."""

_TAG = lazy_pattern(r"<([A-Za-z0-9_-]+)")
_CLOSE = lazy_pattern(r"</([A-Za-z0-9_-]+)>")
# The quantifiers are possessive where a paste without a newline would backtrack for minutes. A line
# that begins with backticks and has more of them is inline code, not the beginning of a block
# (CommonMark, "Fenced code blocks").
_FENCE = lazy_pattern(
    r"^(?P<fence>`{3,}+(?![^\n]*`)|~{3,}+)[^\n]*+\n.*?(?:^(?P=fence)[`~]*[^\S\n]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_TRACEBACK = lazy_pattern(
    r"^[^\S\n]*Traceback \(most recent call last\):\n(?:[^\S\n]+.*\n?)*(?:^[\w.]+(?:: .*)?$\n?)?",
    re.MULTILINE,
)
_LOG_LINE = lazy_pattern(
    r"""^[^\S\n]*(?:
        \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d           # 2026-11-22 10:00
      | \[?(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d      # 10:00:00
      | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?[:\s]
      | at\ (?:\S++[^\S\n]++)*?[^\s(:]*+[(:]\S*:\d+    # a frame of a JavaScript or Java trace
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
    """Tell whether a message begins like those that client programs write, and users do not."""
    return text.lstrip().startswith(_SYSTEM_STARTS)


Unfit: TypeAlias = Literal["system_content", "too_short"]
"""Why a message needs no routing."""


def own_words(text: str) -> tuple[str, Unfit | None]:
    """Return the user's own words in a message, and why it needs no routing.

    Pasted text and what programs added are removed. The reason is None if the message may need
    routing.
    """
    if is_system_content(text):
        return "", "system_content"
    words = clean(text).strip()
    return words, "too_short" if is_too_short(words) else None


def is_too_short(cleaned: str) -> bool:
    """Tell whether a cleaned message is too short to route."""
    return sum(not character.isspace() for character in cleaned) < MIN_CHARACTERS


def clean(text: str) -> str:
    """Return `text` without fenced code, tagged blocks, stack traces and log lines."""
    text = _FENCE.sub("", text)
    text = _without_blocks(text)
    text = _TRACEBACK.sub("", text)
    return _LOG_LINE.sub("", text)


def _without_blocks(text: str) -> str:
    """Remove tagged blocks, such as `<a>...</a>`; a tag that is never closed stays as text."""
    kept: list[str] = []
    at = 0
    last_closes = _last_closes(text)
    while (start := text.find("<", at)) != -1:
        tag = _TAG.match(text, start)
        if tag is None or (last_close := last_closes.get(tag[1], -1)) < tag.end():
            kept.append(text[at : start + 1])
            at = start + 1
        else:
            kept.append(text[at:start])
            at = _end_of_block(text, tag[1], tag.end(), last_close)
    kept.append(text[at:])
    return "".join(kept)


def _last_closes(text: str) -> dict[str, int]:
    """Return the position of the last closing tag of each name.

    One search finds them all, so that a message with ten thousand `<a` takes linear time.
    """
    return {close[1]: close.start() for close in _CLOSE.finditer(text)}


def _end_of_block(text: str, name: str, after_name: int, last_close: int) -> int:
    """Return where a block of tag `name` ends, nested blocks of the same name included.

    `after_name` is the position after the name in its opening tag, `last_close` that of the last
    closing tag of this name.
    """
    close = f"</{name}>"
    opening = re.compile(rf"<{re.escape(name)}(?=[\s>])")
    depth = 1
    at = after_name
    # If the tags are not balanced, the block ends at the last closing tag.
    while depth and at <= last_close:
        closing = text.find(close, at)
        depth += sum(1 for _ in opening.finditer(text, at, closing)) - 1
        at = closing + len(close)
    return at
