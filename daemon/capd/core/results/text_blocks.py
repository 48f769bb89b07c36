"""Adds a block of text to a `tools/call` result, without changing the rest."""

import msgspec

from capd.core.protocol.generations import joined, members_or_none
from capd.core.results.large_results import Result

CONTENT = "content"


def takes_text(result: Result) -> bool:
    """Tell whether a result has content to which a block can be added."""
    if not isinstance(result, bytes):
        return False
    content = members_or_none(result).get(CONTENT)
    return content is not None and bytes(content).startswith(b"[")


def with_text(result: bytes, text: str) -> bytes:
    """Return a result with one more block; `takes_text` has to hold."""
    members = members_or_none(result)
    blocks = bytes(members[CONTENT]).rstrip().removesuffix(b"]").rstrip()
    comma = b"" if blocks == b"[" else b","
    block = msgspec.json.encode({"type": "text", "text": text})
    return joined({**members, CONTENT: msgspec.Raw(blocks + comma + block + b"]")})
