"""Keeps the embedding model loaded while a user may send a message soon.

The embedder unloads its model after some time without use. Somebody who reads for a quarter of an
hour would then wait for the model with the next message. So while a session is open whose client
has a prompt hook, and the machine has enough free memory, the embedder is told to keep the model.
"""

from collections.abc import Callable

import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.adapters import platform
from capd.runtime.bus import ActorUnavailableError

LEAST_AVAILABLE = 2 << 30
"""Bytes of memory that must be available for the model to be kept. The model's process takes about
95 MB (docs/benchmarks.md)."""
ASK_TIMEOUT = 2.0


class ModelKeeping:
    """Checks regularly whether the model should stay loaded."""

    def __init__(
        self,
        embedder: EmbedderClient,
        has_prompts: Callable[[], bool],
        *,
        idle: float,
        available: Callable[[], int | None] = platform.available_memory_bytes,
    ) -> None:
        """Create it. `has_prompts` tells whether a session is open whose client has a prompt hook.

        `idle` is the number of seconds after which the embedder unloads its model; 0 if the model
        is not to be kept. `available` returns the machine's free memory in bytes; None if that is
        unknown.
        """
        self._embedder = embedder
        self._has_prompts = has_prompts
        self._idle = idle
        self._available = available

    async def run(self) -> None:
        """Until cancelled, keep a loaded model loaded while a message may come soon.

        A model that is not loaded is never loaded by this. Return at once if `idle` is 0.
        """
        if not self._idle:
            return
        while True:
            await trio.sleep(self._idle / 3)
            available = self._available()
            if self._has_prompts() and available is not None and available >= LEAST_AVAILABLE:
                await self._use()

    async def _use(self) -> None:
        try:
            # This starts no process and loads nothing.
            await self._embedder.keep(timeout=ASK_TIMEOUT)
        except ActorUnavailableError:
            # The embedder's process is down; the next message starts it.
            return
