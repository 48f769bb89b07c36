"""The process in which the embedder, the actor with the embedding model, runs by itself.

This module imports as little as possible, because the daemon's other modules would take 20 MB more.
Its standard input is one end of a socket pair; the daemon has the other end.
"""

import contextlib
import os
import socket
from collections.abc import Sequence

import trio

from capd.actor_clients.names import EMBEDDER
from capd.actors.embedder import embedder
from capd.adapters import platform
from capd.adapters.log import configure_logs
from capd.adapters.model.minilm import MiniLM, import_onnxruntime
from capd.runtime.frame_channel import ChannelOverError, FrameEndpoint

FAREWELL = 2.0
"""Seconds for writing the last answers."""
_LARGE_BLOCK_BYTES = 128 * 1024


def main(arguments: Sequence[str]) -> int:
    """Serve as the embedder, the process with the embedding model; return the exit code.

    The first argument is the number of seconds without a request after which the process ends. A
    second one is not read: it is the mark by which the daemon's watcher finds the process.
    """
    idle, *_mark = arguments
    # The process gets the user's messages, so other processes of this user must not read its
    # memory, or take its end of the socket pair.
    platform.set_dumpable(os.environ.get("CAPD_DEBUG", "") not in {"", "0"})
    configure_logs(os.environ)
    trio.run(_run, float(idle))
    return 0


def load_model() -> MiniLM:
    """Load the pinned model, and give the memory that loading needed back to the system."""
    platform.keep_large_blocks_apart(_LARGE_BLOCK_BYTES)
    return MiniLM(after_load=platform.trim_memory)


def import_before_usearch() -> None:
    """Import onnxruntime, if this process may load usearch later.

    This is for a daemon that runs the model itself. Both libraries bring parts of the C++ library
    with them: a process that imports onnxruntime 1.32.0 after usearch 2.26.6 ends with a
    segmentation fault. The other order works.
    """
    from capd.adapters.model import vector_graph  # noqa: PLC0415 - not in the embedder's process

    if vector_graph.is_installed():
        # A failed import is reported when the model is loaded.
        with contextlib.suppress(ImportError):
            import_onnxruntime()


async def _run(idle: float) -> None:
    """Serve until `idle` seconds pass without a request, or until the daemon is gone."""
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=os.dup(0))))
    endpoint = FrameEndpoint(EMBEDDER, stream)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endpoint.write)
            await embedder.Embedder(endpoint, load_model, idle=idle, on_idle="end").run()
            endpoint.finish()
            nursery.cancel_scope.deadline = trio.current_time() + FAREWELL
    except* ChannelOverError:
        # The daemon has ended, or has closed its end of the socket pair.
        pass
