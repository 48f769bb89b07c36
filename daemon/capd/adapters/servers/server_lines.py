"""What a lane reads of a server's lines, and the one thing that it changes in a client's.

The rest of every line stays raw: it is passed on as it was written.
"""

import msgspec

from capd_protos.codec import JsonCodec, MalformedError

_NOTHING = msgspec.Raw(b"")


class Incoming(msgspec.Struct):
    """As much of a server's line as the lane needs; what is only passed on stays raw."""

    method: str = ""
    id: int | str | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class Progress(msgspec.Struct):
    """Params of `notifications/progress`, as far as they say whose it is."""

    progressToken: int | str  # noqa: N815 - the protocol's name


class Initialized(msgspec.Struct):
    """The result of `initialize`, as far as the lane acts on it."""

    protocolVersion: str  # noqa: N815 - the protocol's name


class ToolPage(msgspec.Struct):
    """One page of `tools/list`."""

    tools: list[msgspec.Raw]
    nextCursor: str | None = None  # noqa: N815 - the protocol's name


INCOMING: JsonCodec[Incoming] = JsonCodec(Incoming)
PROGRESS: JsonCodec[Progress] = JsonCodec(Progress)
INITIALIZED: JsonCodec[Initialized] = JsonCodec(Initialized)
TOOL_PAGE: JsonCodec[ToolPage] = JsonCodec(ToolPage)
_MEMBERS: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])


def own_progress_token(meta: bytes, message_id: int) -> bytes:
    """Return `_meta` with the call's id in place of the client's progress token."""
    if b"progressToken" not in meta:
        return meta
    try:
        members = _MEMBERS.decode(meta)
    except MalformedError:
        return meta
    if "progressToken" not in members:
        return meta
    members["progressToken"] = msgspec.Raw(b"%d" % message_id)
    return msgspec.json.encode(members)
