"""The embedder's own process: the model, its mailbox, and nothing else of the daemon.

It imports no more than it needs: with the daemon's own modules the process takes 20 MB more.
"""

import os
from collections.abc import Sequence

import trio

from capd.actors import embedder
from capd.adapters import platform
from capd.adapters.log import configure_logs
from capd.adapters.model.minilm import MiniLM
from capd.runtime.bus import Bus
from capd_protos.types import Address


def main(arguments: Sequence[str]) -> int:
    """Be the embedder at ADDRESS until idle for IDLE seconds; return the exit code."""
    address, idle = arguments
    configure_logs(os.environ)
    trio.run(_run, Address(address), float(idle))
    return 0


def load_model() -> MiniLM:
    """Load the pinned model, and give back what loading it took."""
    platform.keep_large_blocks_apart()
    return MiniLM(after_load=platform.trim_memory)


async def _run(address: Address, idle: float) -> None:
    """Be the embedder at `address` until idle, or until the daemon is gone."""
    async with (
        Bus({embedder.NAME: address}, embedder.NAME) as bus,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_end_with_stdin, nursery.cancel_scope)
        await embedder.Embedder(bus, load_model, idle=idle, on_idle="end").run()
        nursery.cancel_scope.cancel()


async def _end_with_stdin(scope: trio.CancelScope) -> None:
    """End when the daemon, which holds the other end of our standard input, is gone."""
    stdin = trio.lowlevel.FdStream(os.dup(0))
    while await stdin.receive_some(1024):
        pass
    scope.cancel()
