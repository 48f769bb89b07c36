"""The two generations of MCP, and how a message of one is translated into the other.

In the handshake generation (2024-11-05 to 2025-11-25) client and server introduce themselves once;
in the stateless generation (2026-07-28) every request does so. Only the members that differ are
added or removed; the rest of a message keeps its bytes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from capd.core.errors import CapdError
from capd.core.results.half_pairs import as_written, decoded, mended
from capd.core.results.json_container import may_spell
from capd.core.results.large_results import LargeResult, Result
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
# Only the last words of the keys, because the slash before them may be escaped.
_MARK = b"protocolVersion"
_SUBSCRIPTION_MARK = b"subscriptionId"

INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022
MISSING_CAPABILITY = -32021

Members = dict[str, msgspec.Raw]
"""A JSON object whose values are still unparsed bytes."""

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
"""Methods whose results have `ttlMs` and `cacheScope` in the stateless generation."""

MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods to which a stateless server may answer with a question to the client."""

NEEDED_CAPABILITY = {
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
    "roots/list": "roots",
}
"""For each request of a server, the capability that a client must have to get the request."""

_MEMBERS: JsonCodec[Members] = JsonCodec(Members)
_TEXT: JsonCodec[str] = JsonCodec(str)
_MODE_URL = b'"url"'


class _Named(msgspec.Struct):
    name: str
    version: str


_NAMED: JsonCodec[_Named] = JsonCodec(_Named)


class _Result(msgspec.Struct):
    resultType: str | msgspec.UnsetType = msgspec.UNSET  # noqa: N815 - the protocol's names
    ttlMs: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815
    cacheScope: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # noqa: N815


class InputRequest(msgspec.Struct, frozen=True):
    """One question that a stateless server asks the client in a result."""

    method: str
    params: msgspec.Raw = msgspec.Raw(b"{}")


class InputRequired(msgspec.Struct, frozen=True):
    """A result with questions: the client repeats its request with the answers."""

    resultType: str = ""  # noqa: N815 - the protocol's names
    inputRequests: dict[str, InputRequest] = {}  # noqa: N815
    requestState: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815


_RESULT: JsonCodec[_Result] = JsonCodec(_Result)
_INPUT_REQUIRED: JsonCodec[InputRequired] = JsonCodec(InputRequired)


class EnvelopeError(CapdError):
    """A stateless request's `_meta` is not valid.

    `code`, the text and `data` are those of the JSON-RPC error to send.
    """

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


@dataclass(frozen=True, slots=True)
class Envelope:
    """The sender of a stateless request, as its `_meta` describes it."""

    client: ClientFacts
    log_level: str


def is_stateless(client: ClientFacts) -> bool:
    """Tell whether a client speaks the stateless generation."""
    return client.version in STATELESS_VERSIONS


def raw(value: Any) -> msgspec.Raw:
    """Return `value` as JSON."""
    return msgspec.Raw(msgspec.json.encode(value))


def members_of(data: bytes | msgspec.Raw) -> Members:
    """Return the members of a JSON object; none for empty bytes and for null.

    Raises:
        MalformedError: `data` is not an object.
    """
    is_nothing = not len(data) or (len(data) == len(b"null") and bytes(data) == b"null")
    return {} if is_nothing else _MEMBERS.decode(data)


def joined(members: Mapping[str, msgspec.Raw]) -> bytes:
    """Return the JSON object of `members`."""
    return b"{" + b",".join(_string(k) + b":" + bytes(v) for k, v in members.items()) + b"}"


def _string(text: str) -> bytes:
    return msgspec.json.encode(text)


def has_envelope(params: bytes | msgspec.Raw) -> bool:
    """Tell whether `params` may name a protocol version.

    The bytes are only searched, not parsed. So this is fast, and True may be wrong.
    """
    return _MARK in bytes(params)


def envelope(meta: Members) -> Envelope | None:
    """Return what a request's `_meta` says about its sender; None if it has no version.

    Raises:
        EnvelopeError: `meta` is not valid, or capd does not speak its version.
    """
    if PROTOCOL_VERSION not in meta:
        return None
    try:
        version = _TEXT.decode(meta[PROTOCOL_VERSION])
    except MalformedError:
        raise EnvelopeError(INVALID_PARAMS, f"{PROTOCOL_VERSION} is not a string") from None
    if CLIENT_CAPABILITIES not in meta:
        raise EnvelopeError(INVALID_PARAMS, f"params._meta lacks {CLIENT_CAPABILITIES}")
    if version not in STATELESS_VERSIONS:
        data = {"supported": list(STATELESS_VERSIONS), "requested": version}
        raise EnvelopeError(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    try:
        capabilities = joined(_MEMBERS.decode(meta[CLIENT_CAPABILITIES]))
    except MalformedError:
        text = f"{CLIENT_CAPABILITIES} is not an object"
        raise EnvelopeError(INVALID_PARAMS, text) from None
    client = facts(version, bytes(meta.get(CLIENT_INFO, b"")), capabilities)
    level = meta.get(LOG_LEVEL)
    return Envelope(client, text_of(level))


def facts(version: str, info: bytes, capabilities: bytes) -> ClientFacts:
    """Return what a client says about itself, in a form that every server accepts.

    A client without a name or version is introduced as capd. Otherwise servers would refuse the
    handshake, and with it every session that shares the instance.
    """
    try:
        _NAMED.decode(info)
    except MalformedError:
        info = ClientFacts().info
    return ClientFacts(version, info, capabilities if members_or_none(capabilities) else b"{}")


def members_or_none(data: bytes) -> Members:
    """Return the members of a JSON object; no members for anything else."""
    try:
        return members_of(data)
    except MalformedError:
        return {}


def text_of(value: msgspec.Raw | None) -> str:
    """Return the text of a JSON string; empty if it is not a string."""
    try:
        return _TEXT.decode(value) if value is not None else ""
    except MalformedError:
        return ""


def offers(client: ClientFacts, method: str, params: bytes = b"") -> bool:
    """Tell whether a client has the MCP capability that a server's request `method` needs.

    `params` are those of the request: a client that can elicit by form need not be able to elicit
    by URL.
    """
    needed = NEEDED_CAPABILITY.get(method)
    if needed is None:
        return True
    offered = members_or_none(client.capabilities)
    if needed not in offered:
        return False
    # A client that names no modes supports only forms (MCP 2025-11-25, "Elicitation").
    return not _is_by_url(method, params) or "url" in members_or_none(bytes(offered[needed]))


def _is_by_url(method: str, params: bytes) -> bool:
    is_elicited = method == "elicitation/create" and _MODE_URL in params
    return is_elicited and bytes(members_or_none(params).get("mode", b"")) == _MODE_URL


def question_for_handshake(method: str, params: bytes, elicitation_id: str) -> bytes:
    """Return the params of a stateless server's question for a client with a handshake.

    In the handshake generation an elicitation by URL needs an id; `elicitation_id` is added.
    """
    if not _is_by_url(method, params):
        return params
    members = members_of(params)
    members.setdefault("elicitationId", raw(elicitation_id))
    return joined(members)


def offers_anything(client: ClientFacts) -> bool:
    """Tell whether a client has an MCP capability that lets servers send it requests."""
    return any(offers(client, method) for method in NEEDED_CAPABILITY)


def meta_for_server(
    meta: Members, client: ClientFacts, *, stateless: bool, token: int, log_level: str = ""
) -> Members:
    """Return a request's `_meta` in the form that its server needs.

    A stateless server gets the version, the client and the log level. A server of the handshake
    generation gets none of them. A progress token is replaced by `token`, because two clients may
    use the same one (docs/design/hostile-servers.md).
    """
    changed = dict(meta)
    if "progressToken" in changed:
        changed["progressToken"] = msgspec.Raw(b"%d" % token)
    if not stateless:
        for key in _ENVELOPE:
            changed.pop(key, None)
        return changed
    changed.setdefault(PROTOCOL_VERSION, raw(NEWEST_STATELESS))
    changed.setdefault(CLIENT_INFO, msgspec.Raw(client.info))
    changed.setdefault(CLIENT_CAPABILITIES, msgspec.Raw(client.capabilities))
    if log_level:
        changed.setdefault(LOG_LEVEL, raw(log_level))
    return changed


def result_for_stateless(result: Result, method: str) -> Result:
    """Return `result`, with those members added that a stateless client needs."""
    if isinstance(result, LargeResult):
        return result.with_members(_lacking(method, result.mentions))
    try:
        found = decoded(_RESULT, result)
    except MalformedError:
        return result
    lacking = _lacking(method, lambda name: getattr(found, name) is not msgspec.UNSET)
    # A result that asks for something cannot be cached.
    if not lacking or found.resultType == "input_required":
        return result
    body = result.lstrip()[1:].lstrip()
    return b"{" + (lacking[:-1] if body.startswith(b"}") else lacking) + body


def _lacking(method: str, has: Callable[[str], bool]) -> bytes:
    """Return the JSON members that a result of `method` should have and lacks.

    Each is followed by a comma. `has` tells whether the result has a member.
    """
    lacking = b"" if has("resultType") else b'"resultType":"complete",'
    if method in CACHEABLE:
        # A server of the handshake generation promises nothing about its next answer.
        lacking += b"" if has("ttlMs") else b'"ttlMs":0,'
        lacking += b"" if has("cacheScope") else b'"cacheScope":"private",'
    return lacking


def input_required(result: Result) -> InputRequired | None:
    """Return the questions in a stateless server's result; None if it has none."""
    if isinstance(result, LargeResult):
        # A question to a person is never that long.
        return None
    if not may_spell(result, "input_required"):
        return None
    try:
        found = decoded(_INPUT_REQUIRED, result)
    except MalformedError:
        return None
    if found.resultType != "input_required":
        return None
    # The state is returned unchanged, whatever it contains.
    state = as_written(bytes(found.requestState), mended(result), result)
    return msgspec.structs.replace(found, requestState=msgspec.Raw(state))


def asking_result(requests: Mapping[str, InputRequest], state: str) -> bytes:
    """Return a result with questions to a stateless client; `state` comes back with the answers."""
    return msgspec.json.encode(
        {"resultType": "input_required", "inputRequests": dict(requests), "requestState": state}
    )


def without_subscription(params: bytes) -> bytes:
    """Return a notification's params without the id of the subscription through which it came.

    Raises:
        MalformedError: `params`, or its `_meta`, is not an object.
    """
    if _SUBSCRIPTION_MARK not in params:
        return params
    members = members_of(params)
    meta = members_of(members.pop("_meta", msgspec.Raw(b"")))
    meta.pop(SUBSCRIPTION_ID, None)
    return joined({**members, "_meta": msgspec.Raw(joined(meta))} if meta else members)


def with_subscription(params: bytes, listen_id: str | float) -> bytes:
    """Return a notification's params with the id of the client's `subscriptions/listen`.

    Raises:
        MalformedError: `params`, or its `_meta`, is not an object.
    """
    members = members_of(params)
    meta = members_of(members.get("_meta", msgspec.Raw(b"")))
    meta[SUBSCRIPTION_ID] = raw(listen_id)
    members["_meta"] = msgspec.Raw(joined(meta))
    return joined(members)
