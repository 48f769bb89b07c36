"""How long a tool's result may be before it is shortened.

The most specific setting counts: the user's for the tool, the user's for its server, the tool's own
(`_meta["anthropic/maxResultSizeChars"]`), the user's for all. 0 means no limit. If the user's limit
for all is 0, a tool's own limit does not count either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from capd_protos.codec import JsonCodec, MalformedError

LIMIT = 32_000
SHORTEST = 2_000
"""The smallest limit. A summary with its handle takes some hundred characters of it."""
LONGEST = 16_000_000
MEDIA_LIMIT = 5_000_000
"""The most characters of base64 of one result's images, audio and blobs together, which is what
providers accept for one image. It is higher than the limit of texts because a model pays for the
pixels of an image, not for the characters of its base64."""

_MARK = b"maxResultSizeChars"


class _Meta(msgspec.Struct):
    size: float | None = msgspec.field(default=None, name="anthropic/maxResultSizeChars")


class _Definition(msgspec.Struct):
    meta: _Meta | None = msgspec.field(default=None, name="_meta")


_DEFINITION: JsonCodec[_Definition] = JsonCodec(_Definition)


@dataclass(frozen=True, slots=True)
class Limits:
    """The user's limits, in characters; 0 means no limit."""

    all: int = LIMIT
    servers: Mapping[str, int] = field(default_factory=dict)
    tools: Mapping[str, int] = field(default_factory=dict)
    """The limits of single tools, by `server:tool`."""
    media: int = MEDIA_LIMIT

    def of(self, server: str, tool: str, definition: bytes) -> int:
        """Return the limit of a tool's results; 0 means no limit.

        `definition` is the tool's entry in `tools/list`.
        """
        configured = self.tools.get(f"{server}:{tool}", self.servers.get(server))
        if configured is not None:
            return _clamped(configured)
        if not self.all:
            return 0
        own = _own(definition)
        return _clamped(self.all if own is None else own)


def _own(definition: bytes) -> int | None:
    """Return the limit in a tool's definition; None if it has none."""
    # A scan is a hundred times faster than a parse, and few tools set a limit.
    if _MARK not in definition:
        return None
    try:
        meta = _DEFINITION.decode(definition).meta
    except MalformedError:
        return None
    size = meta.size if meta is not None else None
    return int(min(size, LONGEST)) if size is not None and size >= 1 else None


def _clamped(limit: int) -> int:
    return min(max(limit, SHORTEST), LONGEST) if limit > 0 else 0
