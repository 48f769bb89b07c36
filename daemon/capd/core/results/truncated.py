r"""The beginning of a JSON value, closed so that it is one: for results too large to be parsed.

    {"content":[{"type":"text","text":"abc\u00   ->   {"content":[{"type":"text","text":"abc"}]}

A text that the cut went through keeps its beginning; any other value is kept whole or not at all.
"""

import re

_TOKEN = re.compile(
    rb'[ \t\r\n]*(?:([{\[])|([}\]])|([,:])|"((?:[^"\\]+|\\.)*)(")?|([^ \t\r\n",:{}\[\]]+))',
    re.DOTALL,
)
# Two escapes are one character where a surrogate pair is spelled out.
_COMPLETE = re.compile(
    rb"(?:[^\\]+|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*",
    re.DOTALL,
)
_DEEPEST = 200


def closed(beginning: bytes) -> bytes:
    """Return the value that `beginning` is the beginning of, as far as it goes; nothing of none."""
    at, depth = 0, bytearray()
    safe, closers = 0, b""
    is_key = False
    while (token := _TOKEN.match(beginning, at)) is not None and len(depth) < _DEEPEST:
        opening, closing, between, text, quote, scalar = token.groups()
        at = token.end()
        if opening:
            depth += b"}" if opening == b"{" else b"]"
            is_key = opening == b"{"
            safe, closers = at, bytes(reversed(depth))
        elif closing:
            del depth[-1:]
            safe, closers = at, bytes(reversed(depth))
            is_key = False
        elif between:
            is_key = between == b"," and depth.endswith(b"}")
        elif text is not None and not quote:
            if is_key:
                break
            return (
                beginning[: token.end() - len(text)] + _whole(text) + b'"' + bytes(reversed(depth))
            )
        elif not is_key and (text is not None or at < len(beginning)):
            safe, closers = at, bytes(reversed(depth))
        elif scalar:
            break
        if not depth:
            break
    return beginning[:safe] + closers


def _whole(text: bytes) -> bytes:
    """Return a JSON string's inside without the escape or the character that it ends within."""
    complete = _COMPLETE.match(text)
    return text[: complete.end() if complete is not None else 0].decode(errors="ignore").encode()
