"""What a lane reads of a server's lines. The rest of every line is passed on as it was written."""

import msgspec

from capd.core.eras import SUBSCRIPTION_ID
from capd_protos.codec import JsonCodec

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


class Cancelled(msgspec.Struct):
    """Params of `notifications/cancelled`."""

    requestId: int | str  # noqa: N815 - the protocol's name


class Updated(msgspec.Struct):
    """Params of `notifications/resources/updated`."""

    uri: str


class SubscriptionMeta(msgspec.Struct):
    """The mark of the stream that carries a notification."""

    subscription_id: int | str = msgspec.field(name=SUBSCRIPTION_ID)


class Subscribed(msgspec.Struct):
    """Params of what a stream carries."""

    meta: SubscriptionMeta = msgspec.field(name="_meta")


class Logged(msgspec.Struct):
    """Params of `notifications/message`, as far as they say for whom it is."""

    level: str = ""


class Initialized(msgspec.Struct):
    """The result of `initialize`, as far as the lane acts on it."""

    protocolVersion: str  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str = ""


class Discovered(msgspec.Struct):
    """The result of `server/discover`, as far as the lane acts on it."""

    supportedVersions: list[str]  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str = ""


class Page(msgspec.Struct, rename="camel"):
    """One page of a list, whichever member it is in."""

    tools: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    resource_templates: list[msgspec.Raw] = []
    next_cursor: str | None = None


class ErrorCode(msgspec.Struct):
    """The code of an error object."""

    code: int = 0


INCOMING: JsonCodec[Incoming] = JsonCodec(Incoming)
PROGRESS: JsonCodec[Progress] = JsonCodec(Progress)
CANCELLED: JsonCodec[Cancelled] = JsonCodec(Cancelled)
SUBSCRIBED: JsonCodec[Subscribed] = JsonCodec(Subscribed)
UPDATED: JsonCodec[Updated] = JsonCodec(Updated)
LOGGED: JsonCodec[Logged] = JsonCodec(Logged)
INITIALIZED: JsonCodec[Initialized] = JsonCodec(Initialized)
DISCOVERED: JsonCodec[Discovered] = JsonCodec(Discovered)
PAGE: JsonCodec[Page] = JsonCodec(Page)
ERROR_CODE: JsonCodec[ErrorCode] = JsonCodec(ErrorCode)
