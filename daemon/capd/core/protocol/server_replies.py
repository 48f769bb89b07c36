"""Changes a server's reply if it is malformed, or if it could be taken for one of capd's own.

A reply is passed on unchanged, with four exceptions:

    an error that is not JSON-RPC          `code` or `message` is missing or of another type, or
                                           the error is a text: a strict client could not read it
    an error that looks like capd's own    its `code` is one of capd's, or it has `data.capd`
    a result that looks like capd's own    a key of its `_meta` begins with `capd/`
    an error that repeats a member         only the last member of each name is passed on

Otherwise a server could claim that a call was not sent although it ran, and a client would repeat
it. In the first two cases, the changed error has the original error in `data.server_error`. A key
`capd/x` of `_meta` becomes `server.capd/x`.
"""

import json
from typing import Any

import msgspec

from capd.core.protocol.generations import Members, joined, members_of, members_or_none, raw
from capd.core.results.half_pairs import as_written, decoded, mended
from capd.core.results.json_container import OWN_PREFIX
from capd_protos.codec import JsonCodec, MalformedError

OWN_CODES = frozenset(range(4001, 4006))
"""The codes of capd's own errors (docs/protocol.md, "Errors")."""
INTERNAL_ERROR = -32603
SERVER_ERROR = "server_error"
"""The member of a changed error's `data` that has the error as its server wrote it."""

_LARGEST_CODE = 2**53
"""Larger integers are not exact in JavaScript."""
_SEARCHED_BYTES = 64 * 1024
_LONGEST_MESSAGE = 2000
_NO_MESSAGE = "the server gave no message"

_CODE: JsonCodec[int] = JsonCodec(int)
_TEXT: JsonCodec[str] = JsonCodec(str)


class _Meta(msgspec.Struct):
    meta: msgspec.Raw = msgspec.field(name="_meta", default=msgspec.Raw(b""))


_META: JsonCodec[_Meta] = JsonCodec(_Meta)


def passed_error(error: bytes) -> bytes:
    """Return the error object that the client gets for the server's error object `error`."""
    try:
        members = decoded_members(error)
    except MalformedError:
        text = _text(error) or "the server's error is not an object"
        return _changed(error, INTERNAL_ERROR, text)
    code, message = _code(members), _text(bytes(members.get("message", b"")))
    is_own = code in OWN_CODES or "capd" in members_or_none(bytes(members.get("data", b"")))
    if code is None or message is None or is_own:
        number = INTERNAL_ERROR if code is None or code in OWN_CODES else code
        return _changed(error, number, message if message is not None else _NO_MESSAGE)
    # If two members have the same name, some clients take the first.
    return joined(members) if _repeats_a_name(error) else error


def passed_result(result: bytes) -> bytes:
    """Return the result that the client gets for the server's `result`."""
    try:
        meta = decoded(_META, result).meta
        if not len(meta) or (b"capd" not in bytes(meta) and b"\\u" not in bytes(meta)):
            return result
        found = members_of(meta)
        if not any(key.startswith(OWN_PREFIX) for key in found):
            return result
        renamed = {_not_own(key): value for key, value in found.items()}
        members = decoded_members(result)
    except MalformedError:
        return result
    return joined({**members, "_meta": msgspec.Raw(joined(renamed))})


def decoded_members(data: bytes) -> Members:
    """Return the members of a JSON object, each as it was written.

    Texts may contain half surrogate pairs.

    Raises:
        MalformedError: `data` is not an object.
    """
    try:
        return members_of(data)
    except MalformedError:
        whole = mended(data)
        if whole is data:
            raise
        found = members_of(whole)
        return {k: msgspec.Raw(as_written(bytes(v), whole, data)) for k, v in found.items()}


def _not_own(key: str) -> str:
    return f"server.{key}" if key.startswith(OWN_PREFIX) else key


def _code(members: Members) -> int | None:
    if "code" not in members:
        return None
    try:
        code = _CODE.decode(members["code"])
    except MalformedError:
        return None
    return code if abs(code) < _LARGEST_CODE else None


def _text(value: bytes) -> str | None:
    """Return the text of a JSON string; None if `value` is not one."""
    try:
        return decoded(_TEXT, value)[:_LONGEST_MESSAGE] if value else None
    except MalformedError:
        return None


def _changed(error: bytes, code: int, message: str) -> bytes:
    data = msgspec.Raw(joined({SERVER_ERROR: msgspec.Raw(error)}))
    return joined({"code": raw(code), "message": raw(message), "data": data})


def _repeats_a_name(error: bytes) -> bool:
    # A name may be written with escapes, so only parsing tells. That is too slow for a long error,
    # which is always written anew.
    if len(error) > _SEARCHED_BYTES:
        return True

    def names(pairs: list[tuple[str, Any]]) -> list[str]:
        return [name for name, _ in pairs]

    # The hook gets the outermost object last, with inner objects as lists of names.
    try:
        found = json.loads(error, object_pairs_hook=names, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return True
    return len(found) != len(set(found))
