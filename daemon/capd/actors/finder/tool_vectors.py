"""Computes the vectors of tools in the background, and the vectors of queries.

The first session or query starts the computing. A daemon that nobody uses computes nothing.

A query is compared with every tool. If there are too many tools for that, a graph finds the nearest
ones instead (`adapters/model/vector_graph`). The graph is in a file beside that of the vectors.
Until the graph is built, words alone decide.

Batches are small, because a user's message has to wait for the batch that the model works on.
Vectors are saved by text hash, so that nothing is embedded again after a restart.
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.adapters.model.minilm import MODEL
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.model.vector_graph import is_installed, vector_graph
from capd.core.errors import CapdError
from capd.core.tools.tool_search import MOST_TOOLS, ToolIndex
from capd.core.tools.tool_text import texts
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd_protos import embedder
from capd_protos.finder import ToolsIndexed

if TYPE_CHECKING:
    from capd.core.tools.tool_search import Vectors

QUERY_TIMEOUT = 0.5
WARM_UP_TIMEOUT = 20.0
BATCH = 4
BATCH_TIMEOUT = 60.0
SAVED_TOGETHER = 512
SAVED_SHARE = 0.1
"""Vectors are saved after every `SAVED_TOGETHER` new ones, or after this share of those that are
saved already if that is more. Each save writes the whole file: 8 MB for ten thousand tools."""
TRY_AGAIN = 5.0

log = structlog.get_logger(actor="finder")


class NoVectorsError(CapdError):
    """Vectors cannot be computed, because the model is not available."""


class ToolVectors:
    """Computes the vectors of one index of tools: the one that `wanted` was called with last."""

    def __init__(
        self,
        bus: Bus,
        cache_file: Path,
        *,
        announces: bool = True,
        users: "ToolVectors | None" = None,
        most_compared: int = MOST_TOOLS,
    ) -> None:
        """Create it. With `announces`, an event is published when the vectors are ready.

        For a project's tools, `users` has the vectors of the user's own tools. They are in the
        project's index as well, and are not computed twice. More tools than `most_compared` are
        searched by a graph, if the optional package for it is installed.
        """
        self._most_compared = most_compared
        self._announces = announces
        self._users = users
        self._lock = trio.Lock()
        self._bus = bus
        self._embedder = EmbedderClient(bus)
        self._cache_file = cache_file
        self._cache: VectorCache | None = None
        self._index = ToolIndex()
        self._need = trio.Event()
        self._is_in_use = False
        self._is_silent = False
        self._is_asked = False
        """Whether a query has come for which the model was not available."""

    @property
    def is_in_use(self) -> bool:
        """Whether `use` was called, or a query has come, since the daemon started."""
        return self._is_in_use or (self._users is not None and self._users.is_in_use)

    def use(self) -> None:
        """Start to compute vectors, because somebody uses capd and may search."""
        self._is_in_use = True
        if self._index.tools and not self._index.has_vectors:
            self._need.set()

    def wanted(self, index: ToolIndex) -> None:
        """Set the tools whose missing vectors are computed in the background.

        The computing begins once `use` was called.
        """
        self._index = index
        if index.tools and self.is_in_use:
            self._need.set()

    async def of_query(self, text: str, *, waits: bool = True) -> "Vectors | None":
        """Return the unit vector of a query; None if the model gives none within `QUERY_TIMEOUT`.

        After a None, the model is loaded in the background, for a later query. Without `waits`, the
        model is not asked if it gave no vector the last time.
        """
        if self._is_silent and not waits:
            self._ask_again()
            return None
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without searches never pays

        reply: embedder.TextsEmbedded | embedder.EmbedderRefused | None = None
        with suppress(ActorUnavailableError):
            reply = await self._embedder.embed([text], timeout=QUERY_TIMEOUT)
        if isinstance(reply, embedder.TextsEmbedded):
            self._is_silent = False
            return np.frombuffer(reply.vectors, dtype="<f4")
        self._is_silent = True
        self._ask_again()
        return None

    def _ask_again(self) -> None:
        # The model may have been unloaded because it was idle; load it for a later query.
        self._is_in_use = self._is_asked = True
        self._need.set()

    async def follow(self) -> None:
        """Compute missing vectors whenever an index needs them, until cancelled."""
        while True:
            await self._need.wait()
            self._need = trio.Event()
            await contained("tool vectors", self._compute, log=log)

    async def _compute(self) -> None:
        index = self._index
        is_asked, self._is_asked = self._is_asked, False
        try:
            if is_asked:
                await self._warm_up()
            await self.ensure()
        except (ActorUnavailableError, NoVectorsError) as error:
            log.info("tool_vectors_not_ready", reason=str(error))
            await trio.sleep(TRY_AGAIN)
            if index is self._index and not isinstance(error, NoVectorsError):
                self._need.set()

    async def _warm_up(self) -> None:
        self._bus.publish(embedder.EmbedderNeeded())
        model = await self._embedder.warm_up(timeout=WARM_UP_TIMEOUT)
        if model.state != "ready":
            raise NoVectorsError(model.reason or "the model is not ready")
        self._is_silent = False

    async def ensure(self) -> None:
        """Compute missing vectors of the index that `wanted` was called with last.

        Raises:
            ActorUnavailableError, NoVectorsError: the model is not available.
        """
        async with self._lock:
            if self._index.tools and not self._index.has_vectors:
                await self._embed(self._index)

    def known(self, wanted: Iterable[str]) -> "dict[str, Vectors]":
        """Return the vectors that exist for the texts `wanted`."""
        below = self._users.known(wanted) if self._users is not None else {}
        return below if self._cache is None else {**below, **self._cache.get(wanted)}

    async def _embed(self, index: ToolIndex) -> None:
        cache = self._cache
        if cache is None:
            cache = self._cache = await trio.to_thread.run_sync(
                VectorCache, self._cache_file, MODEL.key, MODEL.dimensions
            )
        if self._users is not None:
            await self._users.ensure()
        # In threads: with a hundred thousand tools each of them takes a second.
        wanted = await trio.to_thread.run_sync(texts, index.tools)
        missing = await trio.to_thread.run_sync(self._unknown, wanted)
        if missing:
            # If none is missing, nobody needs the model before the first query.
            await self._warm_up()
        at = 0
        while at < len(missing):
            fresh: dict[str, Vectors] = {}
            together = missing[at : at + max(SAVED_TOGETHER, int(SAVED_SHARE * len(cache)))]
            at += len(together)
            for within in range(0, len(together), BATCH):
                if index is not self._index:
                    break
                batch = together[within : within + BATCH]
                fresh.update(await self._embedder.vectors(batch, timeout=BATCH_TIMEOUT))
            await trio.to_thread.run_sync(cache.put, fresh)
            if index is not self._index:
                return
        await self._give(index, wanted)
        if self._announces:
            self._bus.publish(ToolsIndexed(len(wanted), index.servers, has_vectors=True))
        log.info("tool_vectors_ready", tools=len(wanted), embedded=len(missing))

    async def _give(self, index: ToolIndex, wanted: list[str]) -> None:
        """Give `index` the vectors of the texts `wanted`, with which it compares meanings."""
        stacked = partial(self._stacked, wanted)
        if len(wanted) > self._most_compared and is_installed():
            path = self._cache_file.with_suffix(".graph")
            build = partial(vector_graph, path, MODEL.key, wanted, stacked)
            try:
                index.take_search(await trio.to_thread.run_sync(build))
            except ImportError as error:
                log.warning("vector_graph_not_usable", reason=str(error))
            else:
                return
        index.take_vectors(await trio.to_thread.run_sync(stacked))

    def _unknown(self, wanted: list[str]) -> list[str]:
        known = self.known(wanted)
        return list(dict.fromkeys(text for text in wanted if text not in known))

    def _stacked(self, wanted: list[str]) -> "Vectors":
        import numpy as np  # noqa: PLC0415 - as above

        known = self.known(wanted)
        return np.stack([known[text] for text in wanted])
