"""Checks that bytes are exactly one JSON object or list, without parsing them.

Parsing 200 MB would block the interpreter and build objects that nobody needs. This check skips
strings and counts brackets. It does not prove that the bytes are valid JSON. But if they are valid,
they are one object or list, and nothing in them can end it early and add members to the message
around it. The bytes are also checked to be UTF-8.
"""

import codecs
from itertools import accumulate

from capd_protos.codec import MalformedError

_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(each for each in range(256) if each not in b"[]{}")


class ContainerCheck:
    """Checks that bytes, given piece by piece, are exactly one JSON object or list."""

    def __init__(self) -> None:
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
        self._count(b"".join(parts[1::2] if self._is_in_string else parts[::2]))
        self._is_in_string ^= len(parts) % 2 == 0

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
