"""A message that a client posts to the HTTP front: one JSON-RPC message, partly parsed."""

import msgspec

from capd.adapters.line_texts import checked_text
from capd.core.protocol.generations import PROTOCOL_VERSION, has_envelope, members_of
from capd.core.results.half_pairs import decoded
from capd_protos.codec import JsonCodec, MalformedError

_LONGEST_NAME = 100


class Message(msgspec.Struct):
    """The members of a client's JSON-RPC message that the front uses; the rest stays raw."""

    jsonrpc: str = ""
    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")

    @property
    def is_request(self) -> bool:
        """Whether the message requires an answer."""
        return bool(self.method) and bool(len(self.id))


class NotAMessageError(Exception):
    """The body is not a JSON-RPC message; `is_json` says whether it is JSON at all."""

    def __init__(self, text: str, *, is_json: bool) -> None:
        super().__init__(text)
        self.is_json = is_json


class _Agreed(msgspec.Struct):
    protocolVersion: str = ""  # noqa: N815 - the protocol's name


class _Initialized(msgspec.Struct):
    result: _Agreed | None = None


class _Info(msgspec.Struct):
    name: str = ""


_MESSAGE: JsonCodec[Message] = JsonCodec(Message)
_ID: JsonCodec[int | str | float] = JsonCodec(int | str | float)
_INITIALIZED: JsonCodec[_Initialized] = JsonCodec(_Initialized)
_INFO: JsonCodec[_Info] = JsonCodec(_Info)


def message_of(body: bytes) -> Message:
    """Return the message in a body.

    Raises:
        NotAMessageError: the body contains no message, or more than one.
    """
    try:
        message = decoded(_MESSAGE, checked_text(body))
        if len(message.id):
            _ID.decode(message.id)
    except MalformedError as error:
        text = f"the body is not a message of JSON-RPC: {error}"
        raise NotAMessageError(text, is_json=_is_json(body)) from None
    is_answer = bool(len(message.id)) and bool(len(message.result) or len(message.error))
    if message.jsonrpc != "2.0" or not (message.method or is_answer):
        raise NotAMessageError("the body is not a message of JSON-RPC 2.0", is_json=True)
    return message


def client_name(holder: msgspec.Raw, key: str) -> str:
    """Return the name of the client program in the member `key` of `holder`, an object in JSON.

    The name is empty if there is none.
    """
    try:
        return _INFO.decode(members_of(holder)[key]).name[:_LONGEST_NAME]
    except (MalformedError, KeyError):
        return ""


def has_version(params: msgspec.Raw) -> bool:
    """Tell whether the params of a request name its protocol version, in `_meta`."""
    try:
        return has_envelope(params) and PROTOCOL_VERSION in members_of(
            members_of(params).get("_meta", msgspec.Raw(b""))
        )
    except MalformedError:
        return False


def agreed_version(response: bytes) -> str:
    """Return the protocol version in a response to `initialize`; empty for an error response."""
    try:
        found = _INITIALIZED.decode(response).result
    except MalformedError:
        return ""
    return found.protocolVersion if found is not None else ""


def _is_json(body: bytes) -> bool:
    try:
        msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True
