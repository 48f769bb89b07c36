"""Tool calls made directly on a server connection."""

import msgspec

from capd.adapters.servers.callers import Caller, CallHooks
from capd.adapters.servers.server_connection import ServerConnection
from capd.core.protocol.generations import Members, raw


async def call_tool(
    server_connection: ServerConnection,
    name: str,
    arguments: bytes = b"",
    meta: bytes = b"",
    *,
    timeout: float | None = None,
    caller: Caller | None = None,
) -> bytes:
    """Return the result of `tools/call`; raises as `ServerConnection.relay`."""
    members: Members = {"name": raw(name)}
    if arguments:
        members["arguments"] = msgspec.Raw(arguments)
    if meta:
        members["_meta"] = msgspec.Raw(meta)
    result = await server_connection.relay(
        "tools/call", members, caller or CallHooks(), timeout=timeout
    )
    assert isinstance(result, bytes)
    return result
