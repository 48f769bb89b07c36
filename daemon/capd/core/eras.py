"""MCP's two eras, and how what one says is told in the other (40-protocol; 85-facts, decision 4).

The handshake era (2024-11-05 to 2025-11-25) agrees once on who is who; the stateless era
(2026-07-28) says it with every request. What differs is spliced in or left out; the rest of a
message stays the bytes that it came in.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from capd.core.errors import CapdError
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ClientFacts

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NEWEST_HANDSHAKE = HANDSHAKE_VERSIONS[-1]
STATELESS_VERSIONS = ("2026-07-28",)
NEWEST_STATELESS = STATELESS_VERSIONS[-1]

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
_ENVELOPE = (PROTOCOL_VERSION, CLIENT_INFO, CLIENT_CAPABILITIES, LOG_LEVEL)
_MARK = PROTOCOL_VERSION.encode()

INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022
MISSING_CAPABILITY = -32021

Members = dict[str, msgspec.Raw]
"""A JSON object whose values are still the bytes that they came in."""

CACHEABLE = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""Methods whose results say in the stateless era how long they may be kept."""

NEEDED_CAPABILITY = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""What a client must offer for a server to ask this of it."""

_MEMBERS: JsonCodec[Members] = JsonCodec(Members)
_CAPABILITIES: JsonCodec[dict[str, msgspec.Raw]] = JsonCodec(dict[str, msgspec.Raw])


class _Result(msgspec.Struct):
    resultType: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - the protocol's names
    ttlMs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815
    cacheScope: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815


class InputRequest(msgspec.Struct, frozen=True):
    """One thing that a server wants of the client before it goes on."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class InputRequired(msgspec.Struct, frozen=True):
    """A result that is none yet: the request is to be repeated with what it asks for."""

    resultType: str = ""  # noqa: N815 - the protocol's names
    inputRequests: dict[str, InputRequest] = {}  # noqa: N815
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_RESULT: JsonCodec[_Result] = JsonCodec(_Result)
_INPUT_REQUIRED: JsonCodec[InputRequired] = JsonCodec(InputRequired)


class EnvelopeError(CapdError):
    """A request's own statement of who sends it cannot be used."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Envelope:
    """What a request of the stateless era says of its sender."""

    client: ClientFacts
    log_level: str


def is_stateless(client: ClientFacts) -> bool:
    """Tell whether a client speaks the stateless era."""
    return client.version in STATELESS_VERSIONS


def raw(value: Any) -> msgspec.Raw:
    """Return `value` as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def members_of(data: bytes | msgspec.Raw) -> Members:
    """Return the members of a JSON object; of nothing, none.

    Raises:
        MalformedError: it is no object.
    """
    return _MEMBERS.decode(data) if len(data) else {}


def joined(members: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the JSON object of `members`."""
    return b"{" + b",".join(_string(k) + b":" + bytes(v) for k, v in members.items()) + b"}"


def _string(text: str) -> bytes:
    return msgspec.json.encode(text)


def has_envelope(params: bytes | msgspec.Raw) -> bool:
    """Tell whether a request's params may name a protocol version: a scan, not a parse."""
    return _MARK in bytes(params)


def envelope(meta: Members) -> Envelope | None:
    """Return what `_meta` says of the sender, None where it says nothing.

    Raises:
        EnvelopeError: it says something that cannot be used.
    """
    if PROTOCOL_VERSION not in meta:
        return None
    try:
        version = msgspec.json.decode(meta[PROTOCOL_VERSION], type=str)
    except msgspec.ValidationError:
        raise EnvelopeError(INVALID_PARAMS, f"{PROTOCOL_VERSION} is not a string") from None
    if CLIENT_CAPABILITIES not in meta:
        raise EnvelopeError(INVALID_PARAMS, f"params._meta lacks {CLIENT_CAPABILITIES}")
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version}
        raise EnvelopeError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    info = bytes(meta.get(CLIENT_INFO, b"")) or b"{}"
    client = ClientFacts(version, info, bytes(meta[CLIENT_CAPABILITIES]))
    level = meta.get(LOG_LEVEL)
    return Envelope(client, _text(level) if level is not None else "")


def _text(value: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(value, type=str)
    except msgspec.MsgspecError:
        return ""


def offers(client: ClientFacts, method: str) -> bool:
    """Tell whether a server may ask `method` of `client`."""
    needed = NEEDED_CAPABILITY.get(method)
    if needed is None:
        return True
    try:
        return needed in _CAPABILITIES.decode(client.capabilities)
    except MalformedError:
        return False


def offers_anything(client: ClientFacts) -> bool:
    """Tell whether a server may ask anything of `client`."""
    return any(offers(client, method) for method in NEEDED_CAPABILITY)


def meta_for_server(
    meta: Members, client: ClientFacts, *, stateless: bool, token: int, log_level: str = ""
) -> Members:
    """Return `_meta` as a server of either era gets it.

    A progress token becomes `token`: two clients may use the same one (80, E3).
    """
    told = dict(meta)
    if "progressToken" in told:
        told["progressToken"] = msgspec.Raw(b"%d" % token)
    if not stateless:
        for key in _ENVELOPE:
            told.pop(key, None)
        return told
    told.setdefault(PROTOCOL_VERSION, raw(NEWEST_STATELESS))
    told.setdefault(CLIENT_INFO, msgspec.Raw(client.info))
    told.setdefault(CLIENT_CAPABILITIES, msgspec.Raw(client.capabilities))
    if log_level:
        told.setdefault(LOG_LEVEL, raw(log_level))
    return told


def result_for_stateless(result: bytes, method: str) -> bytes:
    """Return `result` with the members that the stateless era wants and a server left out."""
    try:
        found = _RESULT.decode(result)
    except MalformedError:
        return result
    lacking = b"" if isinstance(found.resultType, str) else b'"resultType":"complete",'
    if method in CACHEABLE:
        # Nothing is promised about what a server of the other era will answer next.
        if found.ttlMs is msgspec.UNSET:
            lacking += b'"ttlMs":0,'
        if found.cacheScope is msgspec.UNSET:
            lacking += b'"cacheScope":"private",'
    if not lacking:
        return result
    body = result.lstrip()[1:].lstrip()
    return b"{" + (lacking[:-1] if body.startswith(b"}") else lacking) + body


def input_required(result: bytes) -> InputRequired | None:
    """Return what a result asks for, None where it is the final one."""
    # A search for the words is a hundred times faster than parsing a large result.
    if b"input_required" not in result:
        return None
    try:
        found = _INPUT_REQUIRED.decode(result)
    except MalformedError:
        return None
    return found if found.resultType == "input_required" else None


def asking_result(requests: Mapping[str, InputRequest], state: str) -> bytes:
    """Return the result that asks a client of the stateless era for something."""
    return msgspec.json.encode(
        {"resultType": "input_required", "inputRequests": dict(requests), "requestState": state}
    )


def with_subscription(params: bytes, listen_id: int | str) -> bytes:
    """Return a notification's params marked with the stream that carries them."""
    members = members_of(params)
    meta = members_of(members.get("_meta", msgspec.Raw(b"")))
    meta[SUBSCRIPTION_ID] = raw(listen_id)
    members["_meta"] = msgspec.Raw(joined(meta))
    return joined(members)
