"""What a lane tells a server: the lines of its requests and notifications."""

import msgspec

from capd.adapters.line_texts import one_line
from capd.adapters.servers.callers import Caller
from capd.core.protocol.eras import Members, joined, members_of, meta_for_server


def told_params(message_id: int, members: Members, caller: Caller, *, stateless: bool) -> bytes:
    """Return a request's params as the server gets them."""
    meta = members.get("_meta")
    if meta is None and not stateless:
        return joined(members)
    told = meta_for_server(
        members_of(meta if meta is not None else b""),
        caller.client,
        stateless=stateless,
        token=message_id,
        log_level=caller.log_level,
    )
    others = {key: value for key, value in members.items() if key != "_meta"}
    return joined({**others, "_meta": msgspec.Raw(joined(told))} if told else others)


def request_line(message_id: int, method: str, params: bytes) -> bytes:
    """Return a request."""
    return b'{"jsonrpc":"2.0","id":%d,"method":"%s","params":%s}' % (
        message_id,
        method.encode(),
        one_line(params),
    )


def notification_line(method: str, params: bytes) -> bytes:
    """Return a notification."""
    told = b',"params":' + params if params else b""
    return b'{"jsonrpc":"2.0","method":"%s"%s}' % (method.encode(), told)
