"""Checks that bytes are exactly one JSON object or list, without parsing them.

Parsing 200 MB would block the interpreter and build objects that nobody needs. This check skips
strings and counts brackets. It does not prove that the bytes are valid JSON. But if they are valid,
they are one object or list, and nothing in them can end it early and add members to the message
around it. The bytes are also checked to be UTF-8, and searched for questions to the
client, and for keys in `_meta` that only capd may write.
"""

import codecs
from itertools import accumulate

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import JsonCodec, MalformedError

INPUT_REQUESTS = "inputRequests"
"""The member of a result in which a server asks the client something (MCP 2026-07-28)."""
OWN_PREFIX = "capd/"
"""The prefix of the keys that capd adds to the `_meta` of its own results."""
_DEPTH_IN_META = 2
_LONGEST_SPELLING = 128
"""More bytes than any name looked for has, even with each letter written as an escape."""
# The escapes of ASCII letters and the underscore, which JSON libraries do not write.
_LETTER_ESCAPE = lazy_pattern(rb"\\u00(?:[46][1-9a-fA-F]|[57][0-9aA]|5[fF])")
_TEXT: JsonCodec[str] = JsonCodec(str)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")


def may_spell(data: bytes, word: str) -> bool:
    """Tell whether a string in the JSON `data` may be `word`, which is ASCII letters.

    The bytes are only searched, not parsed. So this is fast, and True may be wrong.
    """
    return word.encode() in data or _LETTER_ESCAPE.search(data) is not None


class ContainerCheck:
    """Checks that bytes, given piece by piece, are exactly one JSON object or list."""

    def __init__(self) -> None:
        self.has_questions = False
        """Whether the object has a member `inputRequests`."""
        self.has_own_keys = False
        """Whether an object directly in the object, such as `_meta`, has a key of capd's own."""
        # The beginning of a string whose end has not come.
        self._begun = b""
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._is_in_string = False
        self._depth = 0
        self._is_closed = False
        self._held = b""

    def feed(self, piece: bytes) -> None:
        """Check the next piece.

        Raises:
            MalformedError: this is not an object or list, or more than one.
        """
        try:
            self._utf8.decode(piece)
        except UnicodeDecodeError:
            raise MalformedError("not valid UTF-8") from None
        text = self._held + piece
        # A backslash at the end is checked together with the character after it.
        backslashes = len(text) - len(text.rstrip(b"\\"))
        self._held = b"\\" * (backslashes % 2)
        text = text[: len(text) - len(self._held)]
        parts = text.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        searched = self._begun + text
        if may_spell(searched, INPUT_REQUESTS) or may_spell(searched, OWN_PREFIX[:-1]):
            self._look_at_names(parts)
        is_continued = self._is_in_string and len(parts) == 1
        self._count(b"".join(parts[1::2] if self._is_in_string else parts[::2]))
        self._is_in_string ^= len(parts) % 2 == 0
        begun = (self._begun if is_continued else b"") + parts[-1]
        self._begun = begun[: _LONGEST_SPELLING + 1] if self._is_in_string else b""

    def end(self) -> None:
        """Finish after the last piece.

        Raises:
            MalformedError: the object or list is not closed.
        """
        if self._is_in_string or self._held or not self._is_closed:
            raise MalformedError("cut off")
        try:
            self._utf8.decode(b"", final=True)
        except UnicodeDecodeError:
            raise MalformedError("not valid UTF-8") from None

    def _look_at_names(self, parts: list[bytes]) -> None:
        """Look for the names of interest among the strings of the two outermost levels."""
        depth = self._depth
        is_string = self._is_in_string
        for number, part in enumerate(parts[:-1]):
            if is_string and 1 <= depth <= _DEPTH_IN_META:
                name = _name_of(part if number else self._begun + part)
                self.has_questions |= depth == 1 and name == INPUT_REQUESTS
                self.has_own_keys |= depth == _DEPTH_IN_META and name.startswith(OWN_PREFIX)
            elif not is_string:
                steps = part.translate(_STEPS, _NO_BRACKETS)
                depth += len(steps) - 2 * steps.count(b"\xff")
            is_string = not is_string

    def _count(self, structure: bytes) -> None:
        steps = structure.translate(_STEPS, _NO_BRACKETS)
        if not steps:
            return
        closings = steps.count(b"\xff")
        if closings >= self._depth:
            depths = list(accumulate(memoryview(steps).cast("b"), initial=self._depth))[1:]
            if self._is_closed or min(depths[:-1], default=1) <= 0 or depths[-1] < 0:
                raise MalformedError("more than one value")
        self._depth += len(steps) - 2 * closings
        self._is_closed = self._depth == 0


def _name_of(written: bytes) -> str:
    """Return the text of a JSON string without its quotes; empty if it is too long for a name."""
    if len(written) > _LONGEST_SPELLING:
        return ""
    try:
        return _TEXT.decode(b'"%s"' % written)
    except MalformedError:
        return ""
