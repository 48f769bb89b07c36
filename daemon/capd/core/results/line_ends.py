"""Reads the two ends of a JSON-RPC line that is too long to be parsed.

Such a line is nearly always an object with one large member, and small ones before and after it.
The small ones are parsed, and the range of the large one is found. The ends cannot show that the
range is one value: with `{"result":{},"x":{}}` they suggest that `result` is `{},"x":{}`. So a
caller must check the bytes of the range as well (`json_container`).
"""

import re
from dataclasses import dataclass
from typing import Any

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import JsonCodec, MalformedError

_SPACE = b" \t\r\n"
_NAME = lazy_pattern(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_SCALAR = lazy_pattern(rb'(?:"[^"\\]*(?:\\.[^"\\]*)*"|[^ \t\r\n",:{}\[\]]+)[ \t\r\n]*,', re.DOTALL)
_BARE_ENDS = b' \t\r\n",:{}[]'
_MEMBERS: JsonCodec[dict[str, Any]] = JsonCodec(dict[str, Any])
_TEXT: JsonCodec[str] = JsonCodec(str)


@dataclass(frozen=True, slots=True)
class LineEnds:
    """The members of a JSON-RPC line with one large member, an object or list left unparsed."""

    scalars: dict[str, Any]
    """Every other member. Of two with the same name, the last counts."""
    large: str
    """The name of the large member."""
    start: int
    """The number of bytes of the line before the large member's value."""
    after: int
    """The number of bytes of the line after the large member's value."""

    @property
    def id(self) -> int | str | float | None:
        """The line's JSON-RPC id; None if it has no valid one."""
        value = self.scalars.get("id")
        # A bool is an int in Python, but no valid id.
        return value if type(value) in {int, str, float} else None

    @property
    def is_result(self) -> bool:
        """Whether the line is a response whose result is the large member."""
        others = self.scalars.keys()
        is_reply = "id" in others and not {"method", "result"} & others
        # Some servers write `"error": null` if there is none.
        return self.large == "result" and is_reply and self.scalars.get("error") is None


def line_ends(head: bytes, tail: bytes) -> LineEnds | None:
    """Return the members of a line that is too long to be parsed.

    `head` and `tail` are the first and the last bytes of the line. None if the line has another
    structure than one large member, with small ones before and after it.
    """
    before = _before_container(head)
    behind = _after_container(tail)
    if before is None or behind is None:
        return None
    members, name, start = before
    others, after = behind
    try:
        scalars = {**_MEMBERS.decode(b"{%s}" % members), **_MEMBERS.decode(b"{%s}" % others)}
        large = _TEXT.decode(name)
    except MalformedError:
        return None
    return LineEnds(scalars, large, start, after)


def _before_container(head: bytes) -> tuple[bytes, bytes, int] | None:
    """Return what precedes the first object or list inside the object that `head` begins.

    The result has the members before the object or list as JSON, its name, and the index where it
    starts. It is None if `head` is not the beginning of such an object.
    """
    first = len(head) - len(head.lstrip(_SPACE))
    if head[first : first + 1] != b"{":
        return None
    at = first + 1
    end_of_members = at
    while (name := _NAME.match(head, at)) is not None:
        if head[name.end() : name.end() + 1] in (b"{", b"["):
            return head[first + 1 : end_of_members], name[1], name.end()
        scalar = _SCALAR.match(head, name.end())
        if scalar is None:
            return None
        at = scalar.end()
        end_of_members = at - 1
    return None


def _after_container(tail: bytes) -> tuple[bytes, int] | None:
    """Return what follows the last object or list inside the object that `tail` ends.

    The result has the members after the object or list as JSON, and how many bytes follow it. It is
    None if `tail` is not the end of such an object. Reading JSON backwards is not ambiguous,
    because there is no backslash outside of strings.
    """
    text = tail.rstrip(_SPACE)
    if not text.endswith(b"}"):
        return None
    brace = comma = len(text) - 1
    while True:
        at = _before_space(text, comma)
        if text[at - 1 : at] in (b"}", b"]"):
            return text[comma + 1 : brace], len(tail) - at
        at = _before_space(text, _start_of_scalar(text, at))
        if text[at - 1 : at] != b":":
            return None
        at = _before_space(text, _start_of_scalar(text, _before_space(text, at - 1)))
        if text[at - 1 : at] != b",":
            return None
        comma = at - 1


def _before_space(text: bytes, at: int) -> int:
    return len(text[:at].rstrip(_SPACE))


def _start_of_scalar(text: bytes, end: int) -> int:
    """Return where the number, text or constant that ends at `end` in `text` begins.

    The result is 0 if it begins before these bytes.
    """
    if text[end - 1 : end] != b'"':
        return max(text.rfind(_BARE_ENDS[i : i + 1], 0, end) for i in range(len(_BARE_ENDS))) + 1
    at = end - 1
    while (at := text.rfind(b'"', 0, at)) > 0:
        before = text[:at]
        if (at - len(before.rstrip(b"\\"))) % 2 == 0:
            return at
    return 0
