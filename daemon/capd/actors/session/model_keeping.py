"""Keeps the embedding model loaded while somebody is about to speak.

The embedder drops its model after a while without a text, and the next message of somebody who was
reading for a quarter of an hour would wait for it. While a session is open whose client hands over
its prompts, and the machine has memory, the embedder is told to keep it.
"""

from collections.abc import Callable

import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.adapters import platform
from capd.runtime.peer import ActorUnavailableError

LEAST_AVAILABLE = 2 << 30
"""Bytes that the machine has to have left: the model takes 165 MiB."""
ASK_TIMEOUT = 2.0


class ModelKeeping:
    """Looks regularly whether the model is to stay."""

    def __init__(
        self,
        embedder: EmbedderClient,
        has_prompts: Callable[[], bool],
        *,
        idle: float,
        available: Callable[[], int | None] = platform.available_memory_bytes,
    ) -> None:
        """`has_prompts` tells whether a session is open whose client hands over its prompts.

        `idle` is after how many seconds the embedder drops its model; 0 if it is never kept.
        `available` is the memory of the machine that nothing needs; None if nobody can say.
        """
        self._embedder = embedder
        self._has_prompts = has_prompts
        self._idle = idle
        self._available = available

    async def run(self) -> None:
        """Keep the model where it is loaded, until cancelled; load none."""
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
            # It is down, and comes back with the next message.
            return
