"""The gateway keeps accepting connections after a failed accept."""

import errno
import os
from collections.abc import Sequence

import structlog
import trio
from trio.abc import Listener

from capd.actors.gateway.accepting import next_connection


class FewDescriptors(Listener[trio.SocketStream]):
    """A listener of a process without a free descriptor for some attempts."""

    def __init__(self, inner: trio.SocketListener, failures: Sequence[int]) -> None:
        self._inner = inner
        self._failures = list(failures)

    async def accept(self) -> trio.SocketStream:
        if self._failures:
            number = self._failures.pop()
            raise OSError(number, os.strerror(number))
        return await self._inner.accept()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_a_connection_is_accepted_once_a_descriptor_is_free(
    autojump_clock: trio.testing.MockClock,
) -> None:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]

    with structlog.testing.capture_logs() as logged:
        async with (
            FewDescriptors(listeners[0], [errno.ENFILE, errno.EMFILE]) as listener,
            await trio.open_tcp_stream("127.0.0.1", port) as client,
            await next_connection(listener, structlog.get_logger()) as stream,
        ):
            await client.send_all(b"hello")
            received = await stream.receive_some(5)

    assert (received, [each["reason"] for each in logged]) == (
        b"hello",
        ["Too many open files", "Too many open files in system"],
    )
