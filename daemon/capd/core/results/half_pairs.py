r"""Handles JSON with half a surrogate pair in a string, such as "\ud83d".

JavaScript writes such JSON when a text is cut in the middle of an emoji. JSON's grammar allows it,
but msgspec refuses it. So capd replaces it by the escape of U+FFFD, which has the same length, in
the copy that it parses itself, and passes the original bytes on. Of JSON of more than 1 MiB capd
passes on the copy, because each later step would have to make it again.
"""

from itertools import islice
from typing import TypeVar

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import JsonCodec, MalformedError

T = TypeVar("T")

MOST_HALVES = 10_000
"""JSON with more halves is left as it is: it was not made by cutting a text."""
MOST_BYTES = 1 << 20
"""Longer JSON is mended once at most, because the search takes long."""
MOST_LARGE_BYTES = 16 << 20
MOST_BACKSLASHES = 4_000_000
MOST_SURROGATES = 200_000
"""JSON with more bytes, backslashes or escapes of surrogates is left as it is. Within these limits
16 MiB take about a tenth of a second; beyond them, up to three times that."""
_HALF = lazy_pattern(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
)
_REPLACEMENT = rb"\ufffd"


def mended(data: bytes) -> bytes:
    """Return `data` with the escape of U+FFFD for each half pair.

    Return `data` itself if it has none, or more than 1 MiB.
    """
    return data if len(data) > MOST_BYTES else _mended(data)


def mended_large(data: bytes) -> bytes:
    """Do what `mended` does for up to 16 MiB of JSON, if that does not take too long."""
    if len(data) > MOST_LARGE_BYTES or data.count(b"\\") > MOST_BACKSLASHES:
        return data
    return _mended(data)


def _mended(data: bytes) -> bytes:
    if rb"\ud" not in data and rb"\uD" not in data:
        return data
    # After an escaped backslash, a `u` does not begin an escape.
    escapes = data.replace(rb"\\", b"  ")
    if escapes.count(rb"\ud") + escapes.count(rb"\uD") > MOST_SURROGATES:
        return data
    halves = list(islice(_HALF.finditer(escapes), MOST_HALVES + 1))
    if not halves or len(halves) > MOST_HALVES:
        return data
    whole = bytearray(data)
    for half in halves:
        whole[half.start() : half.end()] = _REPLACEMENT
    return bytes(whole)


def decoded(codec: JsonCodec[T], data: bytes) -> T:
    """Decode `data`, with U+FFFD for half surrogate pairs.

    Raises:
        MalformedError: `data` is invalid for another reason.
    """
    try:
        return codec.decode(data)
    except MalformedError:
        whole = mended(data)
        if whole is data:
            raise
        return codec.decode(whole)


def as_written(part: bytes, whole: bytes, data: bytes) -> bytes:
    """Return the bytes of `data` at the place of `part` in `whole`, which is `mended(data)`."""
    at = whole.find(part)
    return data[at : at + len(part)]
