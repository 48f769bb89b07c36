"""The embedder: loads the model when it is first needed, and unloads it when idle.

    cold ──WarmUp, EmbedTexts──> loading ──> ready ──idle──> cold (or the process ends)
                                    └──────> unusable ──next request──> loading

The same actor runs in the daemon's process or in a process of its own. Only its mailbox and
`on_idle` differ. While the model loads, the actor refuses texts and queues none, because routing
does not wait for a model.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol

import structlog
import trio

from capd.actor_clients.names import EMBEDDER
from capd.adapters import platform
from capd.adapters.model.minilm import ADAPTER_SHA256, MODEL, ModelUnusableError
from capd.core.routing.passages import MOST_PASSAGES
from capd.runtime.mailbox import IncomingRequest, Mailboxes
from capd_protos import embedder as messages
from capd_protos.codec import MsgpackCodec

REQUESTS: MsgpackCodec[messages.Request] = MsgpackCodec(messages.Request)

MOST_TEXTS = 64
"""The most texts in one request. They take less than a second: the model gets at most 1,024 tokens
at a time, for example 16 texts with 64 tokens each."""
MOST_PARTS = 1 + MOST_PASSAGES
"""The most texts for one message: its beginning and end as one text, and its passages. Only the
vectors of requests with at most this many texts are cached."""
MOST_KEPT = 2 * MOST_PARTS
"""The most cached vectors. With the scorer `trigger_mean`, the parts of a message are compared with
the catalog. A moment later one of them is compared with the tools, and its vector is in the cache.
The scorer `evidence` gains nothing: its vectors are of another space than those of the tools."""

log = structlog.get_logger(actor="embedder")


class Vectors(Protocol):
    """The vectors that a model returns: rows of float32."""

    def tobytes(self) -> bytes:
        """Return the rows one after the other, little-endian."""
        ...


class Model(Protocol):
    """A loaded embedding model."""

    def embed(self, texts: Sequence[str], *, is_changed: bool = False) -> Vectors:
        """Return one unit vector for each text. This blocks.

        With `is_changed`, the vectors are of the space `routing`, otherwise of the space `plain`.
        """
        ...


class Embedder:
    """The embedder's mailbox: receives texts, returns their vectors."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        load: Callable[[], Model],
        *,
        idle: float,
        on_idle: Literal["unload", "end"],
    ) -> None:
        """Create it. `load` loads the model, and blocks.

        After `idle` seconds without a request the model is unloaded; with `on_idle="end"`, `run`
        returns instead.
        """
        self._mailboxes = mailboxes
        self._load = load
        self._idle = idle
        self._on_idle = on_idle
        self._model: Model | None = None
        self._cached: dict[bytes, bytes] = {}
        self._state: messages.EmbedderState = "cold"
        self._reason = ""
        self._loaded = trio.Event()
        self._last_used_at = 0.0
        # One batch at a time: on two cores, two at the same time gain nothing.
        self._limiter = trio.CapacityLimiter(1)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. With `on_idle="end"`, return when idle as well."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._last_used_at = trio.current_time()
            nursery.start_soon(self._drop_when_idle)
            async with self._mailboxes.mailbox(EMBEDDER, REQUESTS) as mailbox:
                task_status.started()
                async for incoming in mailbox:
                    nursery.start_soon(self._answer, incoming)

    async def _answer(self, incoming: IncomingRequest[messages.Request]) -> None:
        async with incoming:
            if isinstance(incoming.request, messages.DescribeEmbedder):
                await _reply(incoming, self._describe())
                return
            self._last_used_at = trio.current_time()
            match incoming.request:
                case messages.EmbedTexts(texts, space):
                    await _reply(incoming, await self._embed(texts, space))
                case messages.WarmUp():
                    self._start_loading()
                    while self._state == "loading":
                        await self._loaded.wait()
                    await _reply(incoming, self._describe())
                case messages.KeepModel():
                    await _reply(incoming, self._describe())
            self._last_used_at = trio.current_time()

    async def _embed(self, texts: list[str], space: messages.VectorSpace) -> messages.Reply:
        if len(texts) > MOST_TEXTS:
            return messages.EmbedderRefused("too_many", f"at most {MOST_TEXTS} texts a request")
        self._start_loading()
        model = self._model
        if model is None:
            return messages.EmbedderRefused(self._state, self._reason or "the model is loading")
        data = self._cached.get(_digest(texts[0], space)) if len(texts) == 1 else None
        if data is None:
            embed = partial(model.embed, texts, is_changed=space == "routing")
            made = await trio.to_thread.run_sync(embed, limiter=self._limiter)
            data = made.tobytes()
            if len(texts) <= MOST_PARTS:
                self._cache(texts, space, data)
        return messages.TextsEmbedded(data, MODEL.dimensions)

    def _cache(self, texts: list[str], space: messages.VectorSpace, data: bytes) -> None:
        """Cache the vectors of `texts`, which are in `data` one after the other."""
        size = len(data) // len(texts) if texts else 0
        for at, text in enumerate(texts):
            self._cached[_digest(text, space)] = data[at * size : (at + 1) * size]
        while len(self._cached) > MOST_KEPT:
            del self._cached[next(iter(self._cached))]

    def _start_loading(self) -> None:
        if self._state in {"cold", "unusable"}:
            self._state, self._reason = "loading", ""
            self._loaded = trio.Event()
            self._nursery.start_soon(self._load_model)

    async def _load_model(self) -> None:
        started_at = trio.current_time()
        try:
            self._model = await trio.to_thread.run_sync(self._load, limiter=self._limiter)
        except ModelUnusableError as error:
            self._state, self._reason = "unusable", str(error)
            log.error("model_unusable", reason=self._reason)
        else:
            self._state = "ready"
            log.info("model_ready", seconds=round(trio.current_time() - started_at, 3))
        self._loaded.set()

    async def _drop_when_idle(self) -> None:
        while True:
            await trio.sleep_until(self._last_used_at + self._idle)
            if trio.current_time() < self._last_used_at + self._idle:
                continue
            if self._state == "loading":
                # Loading is not idling, even if it takes long on a busy machine.
                self._last_used_at = trio.current_time()
                continue
            if self._on_idle == "end":
                log.info("embedder_idle")
                self._nursery.cancel_scope.cancel()
            elif self._model is not None:
                self._model = None
                self._cached.clear()
                self._state = "cold"
                platform.trim_memory()
                log.info("model_unloaded")
            self._last_used_at = trio.current_time()

    def _describe(self) -> messages.EmbedderDescribed:
        pid = os.getpid()
        return messages.EmbedderDescribed(
            state=self._state,
            model=MODEL.id,
            revision=MODEL.revision,
            quantisation=MODEL.quantisation,
            pooling=MODEL.pooling,
            dimensions=MODEL.dimensions,
            pid=pid,
            rss_bytes=platform.rss_bytes(pid) or 0,
            reason=self._reason,
            adapter=ADAPTER_SHA256,
        )


async def _reply(incoming: IncomingRequest[messages.Request], reply: messages.Reply) -> None:
    """Answer a request, unless the socket that it came through has closed.

    A request is taken in one step and answered in another. Between the two the daemon may be
    killed, or the process may end, and then nobody waits for an answer.
    """
    if not incoming.is_answered:
        await incoming.reply(reply)


def _digest(text: str, space: messages.VectorSpace) -> bytes:
    # Lone surrogates are encoded too, so that texts that differ only in them differ here.
    return hashlib.sha256(f"{space} {text}".encode("utf-8", "surrogatepass")).digest()
