"""A text behind the content of a `tools/call` result, all else of it as it was written."""

import msgspec

from capd.core.protocol.generations import joined, members_or_none
from capd.core.results.large_results import Result

CONTENT = "content"


def takes_text(result: Result) -> bool:
    """Tell whether a result has content that a text can stand behind."""
    if not isinstance(result, bytes):
        return False
    content = members_or_none(result).get(CONTENT)
    return content is not None and bytes(content).startswith(b"[")


def with_text(result: bytes, text: str) -> bytes:
    """Return a result that `takes_text` with one more block."""
    members = members_or_none(result)
    blocks = bytes(members[CONTENT]).rstrip().removesuffix(b"]").rstrip()
    comma = b"" if blocks == b"[" else b","
    block = msgspec.json.encode({"type": "text", "text": text})
    return joined({**members, CONTENT: msgspec.Raw(blocks + comma + block + b"]")})
