"""The members of a client's messages that a connection reads. Other members stay raw JSON."""

import msgspec

from capd_protos import socket as frames
from capd_protos.codec import JsonCodec


class Line(msgspec.Struct):
    """The members of a client's line that a connection reads. Other members stay raw JSON."""

    method: str = ""
    id: int | str | float | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class InitializeParams(msgspec.Struct):
    """Params of `initialize`."""

    protocolVersion: str = ""  # noqa: N815 - the protocol's names
    capabilities: msgspec.Raw = msgspec.Raw(b"{}")
    clientInfo: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815


class CancelledParams(msgspec.Struct):
    """Params of `notifications/cancelled`."""

    requestId: int | str | float  # noqa: N815 - the protocol's name


class UriParams(msgspec.Struct):
    """Params that name a resource by its URI, such as those of `resources/subscribe`."""

    uri: str


class LevelParams(msgspec.Struct):
    """Params of `logging/setLevel`."""

    level: str


class ListParams(msgspec.Struct):
    """Params of a list request, such as `tools/list`."""

    cursor: str | None = None


class Filter(msgspec.Struct, rename="camel", omit_defaults=True):
    """The notifications that a `subscriptions/listen` stream should include."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


class ListenParams(msgspec.Struct):
    """Params of `subscriptions/listen`."""

    notifications: Filter


LINE: JsonCodec[Line] = JsonCodec(Line)
INITIALIZE: JsonCodec[InitializeParams] = JsonCodec(InitializeParams)
CANCELLED: JsonCodec[CancelledParams] = JsonCodec(CancelledParams)
URI: JsonCodec[UriParams] = JsonCodec(UriParams)
LEVEL: JsonCodec[LevelParams] = JsonCodec(LevelParams)
LIST: JsonCodec[ListParams] = JsonCodec(ListParams)
LISTEN: JsonCodec[ListenParams] = JsonCodec(ListenParams)
LINK: JsonCodec[frames.FromClient] = JsonCodec(frames.FromClient)
TURN: JsonCodec[frames.TurnParams] = JsonCodec(frames.TurnParams)
