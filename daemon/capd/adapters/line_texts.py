"""Checks and repairs lines: invalid UTF-8, unreadable messages, and unusual line ends."""

import re

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.codec import JsonCodec, MalformedError

_SCAN_BYTES = 64 * 1024
_MAX_ID_BYTES = 512

_NOT_STRUCTURE = lazy_pattern(rb'[^"{}\[\]]*')
_STRING = lazy_pattern(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_ID_VALUE = lazy_pattern(
    rb'\s*:\s*(-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?|"[^"\\]*(?:\\.[^"\\]*)*")(?=\s*[,}])',
    re.DOTALL,
)
_LINE_ENDS = tuple((chr(end).encode(), b"\\u%04x" % end) for end in (0x85, 0x2028, 0x2029))
_ID_CODEC: JsonCodec[int | str | float] = JsonCodec(int | str | float)


def checked_text(data: bytes) -> bytes:
    """Return `data` unchanged after checking that all of it is UTF-8.

    The JSON decoder does not check the parts that stay raw.

    Raises:
        MalformedError: it is not UTF-8, which could break the program that gets it.
    """
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        raise MalformedError("not valid UTF-8") from None
    return data


def one_line(data: bytes) -> bytes:
    r"""Return a line of JSON in a form that is one line for every reader.

    Some readers end a line at a bare CR (between the tokens of JSON it is a space), some also at
    U+0085, U+2028 and U+2029 (allowed unescaped in strings). The value stays the same.
    """
    if b"\r" in data:
        data = data.replace(b"\r", b" ")
    if data.isascii():
        return data
    for written, escaped in _LINE_ENDS:
        if written in data:
            data = data.replace(written, escaped)
    return data


def recover_id(head: bytes) -> int | str | float | None:
    """Return the JSON-RPC id of a message that cannot be parsed; None if none is found.

    `head` are the first bytes of the message. This is a scan, not a parse: the rest may be cut,
    nested too deeply or not UTF-8. The scan is linear, and reads 64 KiB at most.
    """
    text = head[:_SCAN_BYTES].lstrip()
    if not text.startswith(b"{"):
        return None
    depth = 0
    at = 0
    while (at := _end_of(_NOT_STRUCTURE, text, at)) < len(text):
        if text[at : at + 1] != b'"':
            depth += 1 if text[at : at + 1] in b"{[" else -1
            at += 1
            continue
        string = _STRING.match(text, at)
        if string is None:
            return None
        at = string.end()
        value = _ID_VALUE.match(text, at) if depth == 1 and string[0] == b'"id"' else None
        if value is not None:
            return _id_from(value[1])
    return None


def _end_of(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return at if found is None else found.end()


def _id_from(value: bytes) -> int | str | float | None:
    if len(value) > _MAX_ID_BYTES:
        return None
    try:
        return _ID_CODEC.decode(value)
    except MalformedError:
        return None
