"""Reads the hello of a connection, and writes the answer to it.

The hello is the first line that a client sends on capd's socket. It names the client, the project
and the session to open. The answer is a welcome or a refusal.
"""

from collections.abc import Sequence

import msgspec
import trio

from capd.adapters.clients.connection import Connection
from capd.adapters.stdio_frames import Frame, FrameReader, FrameStalledError
from capd.core.sessions.bridges import session_key
from capd_protos import SOCKET_PROTOCOL, curator
from capd_protos import socket as frames
from capd_protos.codec import JsonCodec, MalformedError

HELLO_TIMEOUT = 10.0

_HELLO: JsonCodec[frames.Hello] = JsonCodec(frames.Hello)
_LINES: JsonCodec[frames.FromDaemon] = JsonCodec(frames.FromDaemon)


async def read_hello(
    reader: FrameReader, line_limit_bytes: int | None = None
) -> frames.Hello | frames.Refused:
    """Return the hello that `reader` reads from a connection, or why it is refused.

    `line_limit_bytes` is the limit for lines after the hello; None for the socket's usual limit.
    """
    with trio.move_on_after(HELLO_TIMEOUT):
        try:
            line = await anext(reader)
        except (StopAsyncIteration, FrameStalledError):
            return refused("bad_hello", "the connection closed before its hello")
        if not isinstance(line, Frame):
            limit = frames.HELLO_LIMIT_BYTES
            return refused("bad_hello", f"the first line is over {limit} bytes")
        try:
            hello = _HELLO.decode(line.data)
        except MalformedError as error:
            return refused("bad_hello", f"the first line is not a hello: {error}")
        if hello.protocol != SOCKET_PROTOCOL:
            return refused(
                "protocol",
                f"this daemon speaks protocol {SOCKET_PROTOCOL}, the client {hello.protocol}; "
                "update the older one",
            )
        reader.allow(line_limit_bytes or frames.LINE_LIMIT_BYTES)
        return hello
    return refused("bad_hello", f"no hello within {HELLO_TIMEOUT:g} s")


def refused(code: str, message: str) -> frames.Refused:
    """Return the frame that refuses a hello; `code` and `message` say why."""
    return frames.Refused(code, message, SOCKET_PROTOCOL)


async def send_frame(stream: trio.SocketStream, frame: frames.FromDaemon) -> None:
    """Write a frame of the socket's protocol to a client; give up after 10 s."""
    with trio.move_on_after(HELLO_TIMEOUT):
        await stream.send_all(_LINES.encode(frame) + b"\n")


async def send_welcome(
    stream: trio.SocketStream,
    opened: curator.SessionOpened | curator.CuratorRefused,
    daemon: frames.DaemonInfo,
    connection: Connection,
    want_env: Sequence[str] = (),
) -> bool:
    """Answer a hello with a welcome or a refusal; return whether the stream now has a session.

    `opened` is the reply of the curator, the actor that owns the sessions. `want_env` are the
    environment variables whose values the daemon asks for. `connection.welcomed` is set after the
    welcome.
    """
    if isinstance(opened, curator.CuratorRefused):
        await send_frame(stream, refused(opened.code, opened.message))
        return False
    welcome = frames.Welcome(
        SOCKET_PROTOCOL, daemon, opened.session, opened.resume, opened.resumed, list(want_env)
    )
    try:
        await send_frame(stream, welcome)
    finally:
        # Also if the client has disconnected already: the curator then notices that itself.
        connection.welcomed.set()
    return True


def far_hello(bridge: str, hello: frames.Hello) -> frames.Hello:
    """Return a hello from a bridge, reduced to the parts that capd may use.

    The sender is not the user of this machine. These parts are dropped: the project and working
    directory (paths of another machine, which would choose trust, settings and servers here), the
    profile, process ids, the credential, and requests to continue from an earlier daemon. The
    parent must be a session of the same bridge.
    """
    client = frames.ClientInfo(
        hello.client.name, hello.client.version, session=hello.client.session
    )
    return msgspec.structs.replace(
        hello,
        client=client,
        cwd="",
        project="",
        session=session_key(bridge, hello.session) if hello.session else "",
        parent=session_key(bridge, hello.parent) if hello.parent else "",
        profile="",
        durable=False,
        again=[],
        credential="",
    )
