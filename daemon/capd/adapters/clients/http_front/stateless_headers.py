"""Checks that the headers of a stateless request agree with its body (MCP 2026-07-28, HTTP).

A proxy between client and server may act on the headers alone, so a request whose headers and body
differ is refused. These checks come in this order, and the first that fails is reported:

1. The request's `_meta` has the protocol version and the client's capabilities.
2. The headers agree with the body.
3. capd speaks the version.
4. The headers agree with the arguments that the tool's schema also expects in headers.
"""

import base64
import binascii
from typing import Any

import msgspec

from capd.adapters.clients.http_front.http_connection import HttpRequest
from capd.adapters.servers.http.request_headers import marked_arguments
from capd.core.lazy_patterns import lazy_pattern
from capd.core.protocol.generations import (
    CLIENT_CAPABILITIES,
    INVALID_PARAMS,
    PROTOCOL_VERSION,
    EnvelopeError,
    Members,
    envelope,
    members_of,
)
from capd.core.protocol.tasks import TASK_METHODS
from capd_protos.codec import JsonCodec, MalformedError

HEADER_MISMATCH = -32020
VERSION_HEADER = "mcp-protocol-version"
_METHOD_HEADER = "mcp-method"
_NAME_HEADER = "mcp-name"
_PARAM_PREFIX = "mcp-param-"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ENCODED = lazy_pattern(r"=\?base64\?(.*)\?=")
_DECIMAL = lazy_pattern(r"(-?[0-9]{1,1000})(\.0+)?")


class _Tool(msgspec.Struct):
    name: str
    schema: Any = msgspec.field(name="inputSchema", default=None)


class _Tools(msgspec.Struct):
    tools: list[_Tool]


class _Result(msgspec.Struct):
    result: _Tools


_LISTED: JsonCodec[_Result] = JsonCodec(_Result)


def checked_members(request: HttpRequest, method: str, params: msgspec.Raw) -> Members:
    """Return the members of a request's params, after comparing them with the request's headers.

    Raises:
        EnvelopeError: headers and params differ, `_meta` lacks the version or the client's
            capabilities, or capd does not speak the version.
    """
    try:
        members = members_of(params)
        meta = members_of(members.get("_meta", msgspec.Raw(b"")))
    except MalformedError:
        raise EnvelopeError(INVALID_PARAMS, "params or params._meta is not an object") from None
    lacking = [key for key in (PROTOCOL_VERSION, CLIENT_CAPABILITIES) if key not in meta]
    if lacking:
        raise EnvelopeError(INVALID_PARAMS, f"params._meta lacks {' and '.join(lacking)}")
    _same(request, VERSION_HEADER, _value(meta[PROTOCOL_VERSION]))
    _same(request, _METHOD_HEADER, method)
    wanted = members.get(_NAMED_BY.get(method, ""))
    if wanted is not None:
        _same(request, _NAME_HEADER, _value(wanted))
    elif method in TASK_METHODS and request.values(_NAME_HEADER):
        # Clients of the first drafts of the extension leave the header out.
        _same(request, _NAME_HEADER, _value(members.get("taskId", msgspec.Raw(b"null"))))
    envelope(meta)
    return members


def check_notification(request: HttpRequest, method: str) -> None:
    """Check that the method header of a notification, if it has one, names its body's method.

    Raises:
        EnvelopeError: it names another one, or occurs more than once.
    """
    if request.values(_METHOD_HEADER):
        _same(request, _METHOD_HEADER, method)


def may_have_arguments(request: HttpRequest, tools: bytes) -> bool:
    """Tell whether a call may have to repeat arguments in headers.

    This is a quick scan of `tools`, the JSON of the tools' list, and of the headers' names.
    """
    return b"x-mcp-header" in tools or any(
        name.startswith(_PARAM_PREFIX) for name, _ in request.headers
    )


def check_arguments(request: HttpRequest, members: Members, tools: bytes) -> None:
    """Check that headers repeat the arguments for which the tool's schema requires that.

    `members` are the params of a tool call, and `tools` is the JSON of the tools' list.

    Raises:
        EnvelopeError: a header is missing, has no argument, or differs from its argument.
    """
    name = _value(members.get("name", msgspec.Raw(b"null")))
    try:
        listed = _LISTED.decode(tools).result.tools
    except MalformedError:
        return  # the call itself fails then
    schema = next((tool.schema for tool in listed if tool.name == name), None)
    arguments = _value(members.get("arguments", msgspec.Raw(b"{}")))
    for path, token in marked_arguments(schema).items():
        header = _PARAM_PREFIX + token.lower()
        said = request.values(header)
        if len(said) > 1:
            raise _mismatch(f"{header} occurs more than once")
        value = arguments
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, list | dict):
            value = None
        if (value is None) != (not said):
            raise _mismatch(f"{header} and the argument {'.'.join(path)} must both be present")
        if said and not _agrees(_decoded(said[0]), value):
            raise _mismatch(f"{header} is not the argument {'.'.join(path)}")


def _same(request: HttpRequest, header: str, value: object) -> None:
    said = request.values(header)
    if len(said) != 1:
        raise _mismatch(f"{header} must occur exactly once")
    # A name may be in base64, because it may have characters that are not ASCII. The version and
    # the method may not.
    text = _decoded(said[0]) if header == _NAME_HEADER else said[0]
    if text is None or text != value:
        raise _mismatch(f"{header} differs from the body")


def _agrees(text: str | None, value: object) -> bool:
    if text is None:
        return False
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        # 42 and 42.0 are one number to JSON, and a client may write either.
        number = _DECIMAL.fullmatch(text)
        return number is not None and int(number[1]) == int(value)
    return text == str(value)


def _decoded(text: str) -> str | None:
    """Return the value of a header, which may be in base64; None if it is wrongly encoded."""
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    try:
        data = base64.b64decode(encoded[1], validate=True)
        # Only the canonical form, because lenient decoders could read another value.
        is_canonical = base64.b64encode(data).decode() == encoded[1]
        return data.decode() if is_canonical else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _value(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _mismatch(text: str) -> EnvelopeError:
    return EnvelopeError(HEADER_MISMATCH, text)
