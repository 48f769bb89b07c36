"""The members of a server's messages that the connection reads. The rest is passed on."""

import secrets
from typing import Any

import msgspec

from capd.core.protocol.generations import SUBSCRIPTION_ID, joined, members_of
from capd.core.protocol.outcomes import NotSentError, OutcomeUnknownError, RefusedError, ServerError
from capd.core.protocol.server_replies import passed_error
from capd.core.results.half_pairs import MOST_BYTES, as_written, mended, mended_large
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ServerName

MOST_PAGE_BYTES = 16 << 20
"""The largest page of a list that is read."""
MOST_PAGE_VALUES = 1_000_000
_LONGEST_ID = len(str(2**31))
"""The most digits of the id of a request of capd's."""
_NOTHING = msgspec.Raw(b"")


class Incoming(msgspec.Struct):
    """The members of a server's line that the connection reads; `method` and `id` are decoded."""

    method: str = ""
    id: int | str | float | msgspec.UnsetType | None = msgspec.UNSET
    params: msgspec.Raw = _NOTHING
    result: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


def own_id(found: object) -> int | None:
    """Return the id `found`, from a server's message, as an int; None if it is no id of capd's.

    Some servers repeat the id 7 as "7" or 7.0. The SDKs' clients take that for the same id.
    """
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, str) and len(found) <= _LONGEST_ID and found.isascii():
        return int(found) if found.isdigit() else None
    return found if isinstance(found, int) else None


class Progress(msgspec.Struct):
    """Params of `notifications/progress`: its token tells which request makes progress."""

    progressToken: int | str | float  # noqa: N815 - the protocol's name


class Cancelled(msgspec.Struct):
    """Params of `notifications/cancelled`."""

    requestId: int | str | float  # noqa: N815 - the protocol's name


class TaskChanged(msgspec.Struct, rename="camel"):
    """Params of `notifications/tasks`."""

    task_id: str


class Acknowledged(msgspec.Struct):
    """Params of `notifications/subscriptions/acknowledged`."""

    class Agreed(msgspec.Struct, rename="camel"):
        """The part of a subscription filter that the server has accepted."""

        task_ids: list[str] = []

    notifications: Agreed = msgspec.field(default_factory=Agreed)


class Updated(msgspec.Struct):
    """Params of `notifications/resources/updated`."""

    uri: str


class SubscriptionMeta(msgspec.Struct):
    """The id of the subscription stream that carries a notification."""

    subscription_id: int | str | float = msgspec.field(name=SUBSCRIPTION_ID)


class Subscribed(msgspec.Struct):
    """Params of a notification on a subscription stream."""

    meta: SubscriptionMeta = msgspec.field(name="_meta")


class Logged(msgspec.Struct):
    """The level of a `notifications/message`, which decides which clients get it."""

    level: str = ""


class Initialized(msgspec.Struct):
    """The members of the result of `initialize` that the connection uses."""

    protocolVersion: str  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str | None = None
    serverInfo: msgspec.Raw = _NOTHING  # noqa: N815 - the protocol's name


class Discovered(msgspec.Struct):
    """The members of the result of `server/discover` that the connection uses."""

    supportedVersions: list[str]  # noqa: N815 - the protocol's name
    capabilities: dict[str, msgspec.Raw] = {}
    instructions: str | None = None
    meta: msgspec.Raw = msgspec.field(name="_meta", default=_NOTHING)


class ServerInfo(msgspec.Struct):
    """The members of a server's `serverInfo` that capd keeps."""

    version: str = ""


class DiscoveredMeta(msgspec.Struct):
    """The metadata in which a stateless server describes itself."""

    info: ServerInfo = msgspec.field(
        name="io.modelcontextprotocol/serverInfo", default_factory=ServerInfo
    )


class ListPage(msgspec.Struct, rename="camel"):
    """One page of any list: the next cursor, and the raw entries."""

    tools: list[msgspec.Raw] = []
    prompts: list[msgspec.Raw] = []
    resources: list[msgspec.Raw] = []
    resource_templates: list[msgspec.Raw] = []
    next_cursor: str | None = None
    ttl_ms: Any = None
    """A number, if the server follows the protocol."""


class ErrorCode(msgspec.Struct):
    """The members of an error object."""

    code: int = 0
    message: str = ""


class Supported(msgspec.Struct):
    """The versions that a server names when it refuses another one."""

    supported: list[str] = []


class VersionRefused(msgspec.Struct):
    """An error that refuses a protocol version, with the versions that the server supports."""

    code: int
    data: Supported


INCOMING: JsonCodec[Incoming] = JsonCodec(Incoming)
PROGRESS: JsonCodec[Progress] = JsonCodec(Progress)
CANCELLED: JsonCodec[Cancelled] = JsonCodec(Cancelled)
SUBSCRIBED: JsonCodec[Subscribed] = JsonCodec(Subscribed)
UPDATED: JsonCodec[Updated] = JsonCodec(Updated)
TASK_CHANGED: JsonCodec[TaskChanged] = JsonCodec(TaskChanged)
ACKNOWLEDGED: JsonCodec[Acknowledged] = JsonCodec(Acknowledged)
LOGGED: JsonCodec[Logged] = JsonCodec(Logged)
INITIALIZED: JsonCodec[Initialized] = JsonCodec(Initialized)
DISCOVERED: JsonCodec[Discovered] = JsonCodec(Discovered)
SERVER_INFO: JsonCodec[ServerInfo] = JsonCodec(ServerInfo)
DISCOVERED_META: JsonCodec[DiscoveredMeta] = JsonCodec(DiscoveredMeta)
PAGE: JsonCodec[ListPage] = JsonCodec(ListPage)
VERSION_REFUSED: JsonCodec[VersionRefused] = JsonCodec(VersionRefused)
ERROR_CODE: JsonCodec[ErrorCode] = JsonCodec(ErrorCode)


def with_halves(data: bytes) -> Incoming | None:
    """Decode a line that has half a surrogate pair in a text.

    Return None if the line has no such half, or is not a message even when it is mended. A reply of
    up to 1 MiB is passed on as it was written, but messages from the server itself have to be
    decoded.
    """
    is_large = len(data) > MOST_BYTES
    whole = mended_large(data) if is_large else mended(data)
    if whole is data:
        return None
    try:
        message = INCOMING.decode(whole)
    except MalformedError:
        return None
    if not message.method and not is_large:
        message.result = msgspec.Raw(as_written(bytes(message.result), whole, data))
        message.error = msgspec.Raw(as_written(bytes(message.error), whole, data))
    return message


_LONGEST_VERSION = 100


def handshake_version(found: Initialized) -> str:
    """Return the server's own version in the result of `initialize`; empty if there is none."""
    try:
        return SERVER_INFO.decode(found.serverInfo).version[:_LONGEST_VERSION]
    except MalformedError:
        return ""


def discovered_version(found: Discovered) -> str:
    """Return the server's own version in the result of `server/discover`, or empty."""
    try:
        return DISCOVERED_META.decode(found.meta).info.version[:_LONGEST_VERSION]
    except MalformedError:
        return ""


LINK_MARK = secrets.token_hex(16)
"""Proves that an error comes from the HTTP transport. It never leaves the daemon's memory."""


class _LinkData(msgspec.Struct):
    """The data of an error that capd's HTTP transport made, not the server."""

    link: str = ""


class _LinkError(msgspec.Struct):
    code: int
    message: str
    data: _LinkData


_LINK_ERROR: JsonCodec[_LinkError] = JsonCodec(_LinkError)
_OUTCOMES = {each.code: each for each in (NotSentError, OutcomeUnknownError, RefusedError)}


def error_of(name: ServerName, error: bytes) -> Exception:
    """Return the exception for `error`, the error object in a reply of the server `name`.

    The error is the server's own, or one of the HTTP transport. Only an error with `LINK_MARK`
    comes from the transport. A server cannot know the mark.
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
