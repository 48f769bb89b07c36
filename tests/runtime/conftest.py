"""Fixtures: a ZeroMQ context, and sockets that are closed after the test."""

from collections.abc import Callable, Iterator

import pytest
import zmq

from capd.runtime.zmq_socket import Context, TrioSocket


@pytest.fixture
def context() -> Iterator[Context]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def open_socket(context: Context) -> Iterator[Callable[..., TrioSocket]]:
    opened: list[TrioSocket] = []

    def open_one(kind: zmq.SocketType, **options: int) -> TrioSocket:
        socket = TrioSocket(context, kind, **options)
        opened.append(socket)
        return socket

    yield open_one
    for socket in opened:
        socket.close()
