"""Writes to the file descriptor of a trio stream directly, without a task switch.

A small frame almost always fits into its pipe. Written by the caller's task it costs one system
call; passed to a writer task it also costs two task switches, which was a third of a call's time in
the daemon (docs/benchmarks.md, "Where the time goes").
"""

import os
from collections.abc import Callable

import trio

_CLOSED = -1


def descriptor_of(stream: object) -> Callable[[], int]:
    """Return a function that returns a stream's descriptor, or -1 if there is none or it is closed.

    Call the function for each write: after a close, the number may belong to another file.
    """
    if isinstance(stream, trio.SocketStream):
        return stream.socket.fileno
    if isinstance(stream, trio.lowlevel.FdStream):
        return stream.fileno
    return _no_descriptor


def _no_descriptor() -> int:
    return _CLOSED


def written_at_once(descriptor: int, data: bytes) -> int:
    """Return how many bytes of `data` a descriptor accepted at once; 0 if it is broken.

    Writing the rest then raises the error.
    """
    try:
        return os.write(descriptor, data)
    except OSError:
        return 0
