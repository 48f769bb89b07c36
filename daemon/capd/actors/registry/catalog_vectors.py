"""The vectors of every text that messages are compared with.

    cold ──a message needs them──> loading ──> ready ──embedder gone, catalog changed──> cold
                                      └──> unusable (tried again at the next need)

After a change of the catalog, messages are compared with the old vectors until the new ones are
ready. Nobody waits here: whoever asks too early gets an error, and asking starts the loading. The
vectors of a catalog are cached on disk by model and text hash. A user's text is embedded and
forgotten.
"""

import signal
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.adapters.model.minilm import MODEL
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.routing_files import background_messages
from capd.core.errors import CapdError
from capd.core.routing.deciding import Comparison, comparison
from capd.core.routing.gates import RoutingProfile
from capd.core.routing.scorers import texts_of
from capd.core.taps.catalog import Catalog
from capd.runtime.boundary import contained
from capd.runtime.bus import Bus
from capd.runtime.peer import ActorUnavailableError, AskLostError, AskTimeoutError
from capd_protos import embedder
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted

if TYPE_CHECKING:
    from capd.core.routing.gates import Vectors

HINTS: MsgpackCodec[embedder.EmbedderExited | SessionStarted] = MsgpackCodec(
    embedder.EmbedderExited | SessionStarted
)

RENEWING_TIMEOUT = 1.0
"""Seconds for a batch while the texts of a catalog are embedded, a few at a time."""
MESSAGE_TIMEOUT = 0.25
"""Seconds for the vector of one message. A loaded model takes 10 to 17 ms."""
WARM_UP_TIMEOUT = 20.0
"""Seconds to load the model, which usually takes less than one. A process that does not answer by
then is ended and started again."""
BATCH = 32
RENEWING_BATCH = 8
"""Texts in a batch: few, so that a message does not wait long behind one."""
BATCH_TIMEOUT = 60.0
TRY_AGAIN = 1.0
LOOK_AGAIN = 0.05

log = structlog.get_logger(actor="registry")


class NotReadyError(CapdError):
    """There are no vectors at the moment."""


class CatalogVectors:
    """The vectors that messages are compared with."""

    def __init__(
        self,
        bus: Bus,
        cache_file: Path,
        profile: RoutingProfile,
        users: "CatalogVectors | None" = None,
    ) -> None:
        """`users` are the vectors of the user's catalog.

        They are shared, and made and saved only there.
        """
        self._users = users
        self._turn = trio.Lock()
        self.state: embedder.EmbedderState = "cold"
        self.reason = ""
        self._bus = bus
        self._embedder = EmbedderClient(bus)
        self._cache_file = cache_file
        self._profile = profile
        self._cache: VectorCache | None = None
        self._catalog = Catalog()
        self._compared: Comparison | None = None
        """The comparison with this catalog, or with the one before it."""
        self._has_model = False
        self._need = trio.Event()
        self._attempt = trio.CancelScope()

    def catalog_changed(self, catalog: Catalog) -> None:
        """Compare messages with `catalog` as soon as its triggers are embedded."""
        self._catalog = catalog
        if self.state == "ready":
            self.state = "cold"
            self._need.set()

    async def follow(self) -> None:
        """Make missing vectors whenever they are needed, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen)
            nursery.start_soon(self._contained_prepare)

    async def _contained_prepare(self) -> None:
        # Without vectors routing abstains, which is better than no registry.
        while True:
            await contained("prepare", self._prepare, log=log)
            self.state, self.reason = "unusable", "capd failed over the vectors; its log says where"
            self._compared, self._has_model = None, False

    async def compared(self, text: str) -> "tuple[Vectors, Comparison]":
        """Return the vector of `text`, and the catalog that it is to be compared with."""
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        compared = self._compared
        if not self._has_model or compared is None:
            self._need.set()
            raise NotReadyError
        is_renewing = self.state != "ready"
        timeout = RENEWING_TIMEOUT if is_renewing else MESSAGE_TIMEOUT
        try:
            reply = await self._embedder.embed([text], timeout=timeout)
        except ActorUnavailableError as error:
            if is_renewing:
                # It has the catalog's texts to do; whether it is gone shows with those.
                raise NotReadyError from None
            self._lost_embedder(_said_of(error))
            raise NotReadyError from None
        if not isinstance(reply, embedder.TextsEmbedded):
            self._lost_embedder("it is loading")
            raise NotReadyError
        return np.frombuffer(reply.vectors, dtype="<f4"), compared

    async def until_ready(self, patient_until: float) -> bool:
        """Wait for the model and the vectors until `patient_until`.

        Return whether they are ready.
        """
        with trio.move_on_at(patient_until):
            await trio.sleep(LOOK_AGAIN)
            while not self._has_model or self._compared is None:
                await trio.sleep(LOOK_AGAIN)
            return True
        return False

    def _lost_embedder(self, reason: str) -> None:
        log.info("embedder_lost", reason=reason)
        self.state, self.reason, self._has_model = "cold", reason, False
        self._need.set()

    async def _listen(self) -> None:
        async with self._bus.subscribe(HINTS, "embedder.exited", "session.started") as hints:
            async for hint in hints:
                if isinstance(hint, SessionStarted):
                    # The user's first words follow soon; they should not find a cold model.
                    self._need.set()
                    continue
                self._has_model = False
                if not hint.expected and self.state != "unusable":
                    self.reason = f"its process ended ({_how(hint.returncode)}); another one starts"
                if self.state == "ready":
                    self.state = "cold"
                    if not hint.expected:
                        self._need.set()
                elif self.state == "loading":
                    # What it was asked went with it, and nobody would answer for two minutes.
                    self._need.set()
                    self._attempt.cancel()

    async def _prepare(self) -> None:
        """Start the embedder and make the missing vectors, whenever they are needed."""
        while True:
            await self._need.wait()
            self._need = trio.Event()
            if self.state == "ready" and self._compared is not None:
                continue
            self.state = "loading"
            catalog = self._catalog
            made: Comparison | None = None
            self._attempt = trio.CancelScope()
            try:
                with self._attempt:
                    await self._warm_up()
                    made = await self._embed_catalog(catalog)
            except ActorUnavailableError as error:
                if isinstance(error, AskTimeoutError) and not isinstance(error, AskLostError):
                    self._bus.publish(embedder.EmbedderStuck())
                self.state, self.reason, self._has_model = "cold", _said_of(error), False
                log.warning("embedder_not_ready", reason=self.reason)
                # What was down may be starting: it is asked again without another message.
                await trio.sleep(TRY_AGAIN)
                self._need.set()
            except CapdError as error:
                self.state, self.reason, self._has_model = "unusable", str(error), False
                log.error("embedder_unusable", reason=self.reason)
            else:
                if made is None or catalog is not self._catalog:
                    self._need.set()
                    continue
                self._compared = made
                self.state, self.reason, self._has_model = "ready", "", True
                log.info("routing_ready", capabilities=len(catalog.winners))

    async def _warm_up(self) -> None:
        self._bus.publish(embedder.EmbedderNeeded())
        model = await self._embedder.warm_up(timeout=WARM_UP_TIMEOUT)
        if model.state != "ready":
            raise NotReadyError(model.reason)
        self._profile.check(model.model, model.quantisation, model.pooling, model.revision)

    async def _embed_catalog(self, catalog: Catalog) -> Comparison:
        known = await self._of_catalog(catalog)
        return await trio.to_thread.run_sync(
            comparison, self._profile, catalog.winners, known, background_messages()
        )

    async def everybodys(self) -> "dict[str, Vectors]":
        """Return the vector of every text of this catalog."""
        return await self._of_catalog(self._catalog)

    async def _of_catalog(self, catalog: Catalog) -> "dict[str, Vectors]":
        """Return the vector of every text of `catalog`; those that are missing are made."""
        below: dict[str, Vectors] = {}
        if self._users is not None:
            below = await self._users.everybodys()
        catalog_texts = [text for each in catalog.winners for text in texts_of(each)]
        texts = list(dict.fromkeys([*catalog_texts, *background_messages()]))
        # One at a time: a project's catalog asks for everybody's as well.
        async with self._turn:
            own = await self._brought_in([text for text in texts if text not in below])
        return {**below, **own}

    async def _brought_in(self, texts: list[str]) -> "dict[str, Vectors]":
        cache = self._cache
        if cache is None:
            cache = self._cache = await trio.to_thread.run_sync(
                VectorCache, self._cache_file, MODEL.key, MODEL.dimensions
            )
            if cache.reason:
                log.warning("vector_cache_ignored", reason=cache.reason)
        known = cache.get(texts)
        missing = [text for text in texts if text not in known]
        fresh: dict[str, Vectors] = {}
        try:
            batch = RENEWING_BATCH if self._has_model else BATCH
            for at in range(0, len(missing), batch):
                fresh.update(await self._embedded(missing[at : at + batch]))
        finally:
            # Written once, because it is written whole; also what an attempt that failed has made.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(cache.put, fresh)
        return cache.get(texts)

    async def _embedded(self, texts: list[str]) -> "dict[str, Vectors]":
        import numpy as np  # noqa: PLC0415 - as above

        reply = await self._embedder.embed(texts, timeout=BATCH_TIMEOUT)
        if not isinstance(reply, embedder.TextsEmbedded):
            raise AskTimeoutError(f"{self._embedder.actor} did not embed: {reply}")
        rows = np.frombuffer(reply.vectors, dtype="<f4").reshape(len(texts), reply.dimensions)
        return dict(zip(texts, rows, strict=True))


def _said_of(error: CapdError) -> str:
    """Return why the model's process gave no vectors."""
    if isinstance(error, AskLostError):
        return "its process ended; another one starts"
    if isinstance(error, AskTimeoutError):
        return "its process did not answer in time; one that hangs is ended and replaced"
    return str(error)


def _how(returncode: int) -> str:
    """Return how a process ended: by which signal, or with which exit code."""
    if -returncode in set(signal.Signals):
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"
