"""The file descriptor of a trio stream, for reads and writes without a task switch."""

from collections.abc import Callable

import trio

_CLOSED = -1


def descriptor_of(stream: object) -> Callable[[], int]:
    """Return a function without arguments that returns the descriptor of `stream`.

    It returns -1 if the stream has none, or is closed. Call the function for each write: after a
    close, the number may belong to another file.
    """
    if isinstance(stream, trio.SocketStream):
        return stream.socket.fileno
    if isinstance(stream, trio.lowlevel.FdStream):
        return stream.fileno
    return _no_descriptor


def _no_descriptor() -> int:
    return _CLOSED
