"""Decodes the parts of a server's lines that the connection reads; the rest is passed on."""

import secrets
from typing import Any

import msgspec

from capd.core.protocol.generations import SUBSCRIPTION_ID, joined, members_of
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, RefusedError, ServerError
from capd.core.protocol.server_replies import passed_error
from capd.core.results.half_pairs import as_written, mended
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ServerName

_NOTHING = msgspec.Raw(b"")


class Incoming(msgspec.Struct):
    """The parts of a server's line that the connection reads. All else stays raw."""

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
    """The result of `initialize`, as far as the server connection acts on it."""

    protocolVersion: str  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str = ""
    serverInfo: msgspec.Raw = _NOTHING  # noqa: N815 - the protocol's name


class Discovered(msgspec.Struct):
    """The result of `server/discover`, as far as the server connection acts on it."""

    supportedVersions: list[str]  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str = ""
    meta: msgspec.Raw = msgspec.field(name="_meta", default=_NOTHING)


class ServerInfo(msgspec.Struct):
    """What a server says of itself, as far as it is kept."""

    version: str = ""


class DiscoveredMeta(msgspec.Struct):
    """Where a server of the stateless generation says it."""

    info: ServerInfo = msgspec.field(
        name="io.modelcontextprotocol/serverInfo", default_factory=ServerInfo
    )


class Page(msgspec.Struct, rename="camel"):
    """One page of a list, whichever member it is in."""

    tools: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    resource_templates: list[msgspec.Raw] = []
    next_cursor: str | None = None
    ttl_ms: Any = None
    """A number, where the server does as the protocol says."""


class ErrorCode(msgspec.Struct):
    """What an error object says."""

    code: int = 0
    message: str = ""


class Supported(msgspec.Struct):
    """What goes with the refusal of a version."""

    supported: list[str] = []


class VersionRefused(msgspec.Struct):
    """An error that refuses a version."""

    code: int
    data: Supported


INCOMING: JsonCodec[Incoming] = JsonCodec(Incoming)
PROGRESS: JsonCodec[Progress] = JsonCodec(Progress)
CANCELLED: JsonCodec[Cancelled] = JsonCodec(Cancelled)
SUBSCRIBED: JsonCodec[Subscribed] = JsonCodec(Subscribed)
UPDATED: JsonCodec[Updated] = JsonCodec(Updated)
LOGGED: JsonCodec[Logged] = JsonCodec(Logged)
INITIALIZED: JsonCodec[Initialized] = JsonCodec(Initialized)
DISCOVERED: JsonCodec[Discovered] = JsonCodec(Discovered)
SERVER_INFO: JsonCodec[ServerInfo] = JsonCodec(ServerInfo)
DISCOVERED_META: JsonCodec[DiscoveredMeta] = JsonCodec(DiscoveredMeta)
PAGE: JsonCodec[Page] = JsonCodec(Page)
VERSION_REFUSED: JsonCodec[VersionRefused] = JsonCodec(VersionRefused)
ERROR_CODE: JsonCodec[ErrorCode] = JsonCodec(ErrorCode)


def with_halves(data: bytes) -> Incoming | None:
    """Return a line that has half a surrogate pair in a text, None where that is not its fault.

    A reply is passed on, and stays as it was written; what the server says unasked is read here.
    """
    whole = mended(data)
    if whole is data:
        return None
    try:
        message = INCOMING.decode(whole)
    except MalformedError:
        return None
    if not message.method:
        message.result = msgspec.Raw(as_written(bytes(message.result), whole, data))
        message.error = msgspec.Raw(as_written(bytes(message.error), whole, data))
    return message


_LONGEST_VERSION = 100


def handshake_version(found: Initialized) -> str:
    """Return the server's own version, empty where it does not say."""
    try:
        return SERVER_INFO.decode(found.serverInfo).version[:_LONGEST_VERSION]
    except MalformedError:
        return ""


def discovered_version(found: Discovered) -> str:
    """Return the server's own version, empty where it does not say."""
    try:
        return DISCOVERED_META.decode(found.meta).info.version[:_LONGEST_VERSION]
    except MalformedError:
        return ""


LINK_MARK = secrets.token_hex(16)
"""Proves that an error is the HTTP link's own word. It never leaves the daemon's memory."""


class _LinkData(msgspec.Struct):
    """What goes with an error of the link's own."""

    link: str = ""


class _LinkError(msgspec.Struct):
    code: int
    message: str
    data: _LinkData


_LINK_ERROR: JsonCodec[_LinkError] = JsonCodec(_LinkError)
_OUTCOMES = {each.code: each for each in (NotSentError, OutcomeUnknownError, RefusedError)}


def error_of(name: ServerName, error: bytes) -> Exception:
    """Return what a reply's error means: the server's own, or the HTTP link's word for an outcome.

    Only an error with `LINK_MARK` is the link's. A server cannot know it.
    """
    if LINK_MARK.encode() not in error:
        return ServerError(passed_error(error))
    try:
        said = _LINK_ERROR.decode(error)
    except MalformedError:
        return ServerError(passed_error(error))
    if said.data.link != LINK_MARK:
        return ServerError(passed_error(error))
    outcome = _OUTCOMES.get(said.code)
    if outcome is not None:
        return outcome(f"{name}: {said.message}")
    members = members_of(error)
    data = members_of(members["data"])
    del data["link"]
    return ServerError(joined({**members, "data": msgspec.Raw(joined(data))}))
