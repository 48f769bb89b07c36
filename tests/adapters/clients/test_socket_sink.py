"""Lines to a client that cannot be written at once, also while the connection closes."""

import socket

import trio

from capd.adapters.clients.socket_sink import SocketSink

LINE = b"x" * 4096


def narrow() -> tuple[trio.SocketStream, socket.socket]:
    """Return a stream with small buffers, and its other end, which does not read."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    ours.setblocking(False)
    return trio.SocketStream(trio.socket.from_stdlib_socket(ours)), theirs


def fill(sink: SocketSink) -> None:
    """Write until something is left over."""
    while sink.is_out([LINE]):
        pass


async def test_what_is_left_over_is_written_by_a_task() -> None:
    stream, theirs = narrow()
    sink = SocketSink(stream)
    async with trio.open_nursery() as nursery:
        sink.open(nursery, lambda: None)

        fill(sink)

        assert len(nursery.child_tasks) == 1
        nursery.cancel_scope.cancel()
    await sink.aclose()
    theirs.close()


async def test_a_connection_that_is_closing_takes_no_task_for_what_is_left_over() -> None:
    stream, theirs = narrow()
    sink = SocketSink(stream)
    async with trio.open_nursery() as nursery:
        sink.open(nursery, lambda: None)
        nursery.cancel_scope.cancel()

        fill(sink)

        assert len(nursery.child_tasks) == 0
    # Closed, it could take none: a line that comes this late is lost, and nothing fails.
    fill(sink)
    await sink.aclose()
    theirs.close()
