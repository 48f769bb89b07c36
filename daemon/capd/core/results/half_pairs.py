r"""JSON with half a surrogate pair in a string, such as "\ud83d", which JavaScript writes.

It remains when a text is cut in the middle of an emoji. JSON's grammar allows it, Unicode has no
character for it, and decoders disagree: ours refuses it. So capd replaces it by U+FFFD, which has
the same length, in what it reads itself, and passes the original bytes on.
"""

import re
from itertools import islice
from typing import TypeVar

from capd_protos.codec import JsonCodec, MalformedError

T = TypeVar("T")

MOST_HALVES = 10_000
"""A text with more of them was not just cut."""
MOST_BYTES = 1 << 20
"""A longer text is not checked, because nothing may wait for that."""
_HALF = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_REPLACEMENT = rb"\ufffd"


def mended(data: bytes) -> bytes:
    """Return `data` with U+FFFD for each half of a pair, at the same places."""
    if len(data) > MOST_BYTES or (rb"\ud" not in data and rb"\uD" not in data):
        return data
    # After an escaped backslash, a `u` does not begin an escape.
    escapes = data.replace(rb"\\", b"  ")
    halves = list(islice(_HALF.finditer(escapes), MOST_HALVES + 1))
    if not halves or len(halves) > MOST_HALVES:
        return data
    whole = bytearray(data)
    for half in halves:
        whole[half.start() : half.end()] = _REPLACEMENT
    return bytes(whole)


def decoded(codec: JsonCodec[T], data: bytes) -> T:
    """Decode `data` for capd's own use.

    Raises:
        MalformedError: it is invalid for another reason.
    """
    try:
        return codec.decode(data)
    except MalformedError:
        whole = mended(data)
        if whole is data:
            raise
        return codec.decode(whole)


def as_written(part: bytes, whole: bytes, data: bytes) -> bytes:
    """Return the bytes of `data` that correspond to `part` of `whole`, the mended `data`."""
    at = whole.find(part)
    return data[at : at + len(part)]
