"""The vectors of every text that messages are compared with.

    cold ──a session starts, or a message comes──> loading
    loading ──> ready ──embedder gone, catalog changed──> cold
       └──────> unusable (tried again with the next session or message)

A vector comes from the cache on disk, from capd or a tap that ships it, or from the model. While
256 or more vectors are missing, messages are compared with the vectors that exist, and by words
with all texts; `percent` says what share of the vectors exists. While fewer are missing, messages
are compared with the previous catalog, if there was one. `compared` never waits for the loading: a
caller that comes too early gets `NotReadyError`, and its request starts the loading. A user's text
is embedded and not stored.
"""

import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
import trio

from capd.actor_clients.embedder import EmbedderClient
from capd.adapters.catalog_memory import trim_after_load
from capd.adapters.model.minilm import MODEL, ROUTING
from capd.adapters.model.vector_cache import VectorCache
from capd.adapters.routing_files import background_messages, background_vectors
from capd.adapters.tap_files import STARTER, tap_vectors
from capd.core.errors import CapdError
from capd.core.routing.gates import RoutingProfile
from capd.core.taps.catalog import Catalog
from capd.core.taps.tap_vectors import spoken_for
from capd.core.trust.project_tap import project_of
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, AskLostError, AskTimeoutError, Bus
from capd_protos import embedder
from capd_protos.codec import MsgpackCodec
from capd_protos.curator import SessionStarted
from capd_protos.types import CapabilitySpec

if TYPE_CHECKING:
    from capd.core.routing.deciding import CatalogWords, Comparison
    from capd.core.routing.gates import Vectors
    from capd.core.routing.siblings import Siblings

HINTS: MsgpackCodec[embedder.EmbedderExited | SessionStarted] = MsgpackCodec(
    embedder.EmbedderExited | SessionStarted
)

RENEWING_TIMEOUT = 1.0
"""Seconds for the vector of a message while the texts of a catalog are being embedded, or if the
caller can wait that long."""
MESSAGE_TIMEOUT = 0.25
"""Seconds for the vector of one message. A loaded model takes 10 to 20 ms."""
PART_TIMEOUT = 0.05
"""Additional seconds for each further part of a long message, which takes the model 5 to 13 ms."""
WARM_UP_AFTER = 1.0
"""Seconds from a session's start to the loading of the model, unless a message comes before."""
WARM_UP_TIMEOUT = 20.0
"""Seconds to load the model, which usually takes less than two. A process that does not answer by
then is ended and started again."""
BATCH = 32
RENEWING_BATCH = 16
"""Texts in a batch while messages are compared: few, because a message waits behind one batch."""
PARTLY_FROM = 256
"""From this many missing vectors on (a second's work), messages use the vectors that exist."""
SORTED_TOGETHER = 256
"""The texts are embedded in the order of their importance. This many at a time are sorted by
length, which saves padding in a batch."""
SAVED_TOGETHER = 4096
"""How many vectors are computed between two saves; each save writes the whole file."""
BATCH_TIMEOUT = 60.0
TRY_AGAIN = 1.0
LOOK_AGAIN = 0.05

log = structlog.get_logger(actor="registry")


class NotReadyError(CapdError):
    """A message cannot be compared yet: the model or the vectors of the catalog are not ready."""


class CatalogVectors:
    """The vectors of one catalog's texts, with which messages are compared."""

    def __init__(
        self,
        bus: Bus,
        cache_file: Path,
        profile: RoutingProfile,
        users: "CatalogVectors | None" = None,
        preferred: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Create the vectors of one catalog.

        A project's catalog includes the user's catalog. For a project's catalog, `users` has the
        vectors of the user's catalog, so that they are not computed or saved twice. `preferred`
        returns the capabilities, as `tap/name`, whose vectors are computed first.
        """
        self._users = users
        self._preferred = preferred
        self._missing = self._wanted = 0
        self._turn = trio.Lock()
        self.state: embedder.EmbedderState = "cold"
        self.reason = ""
        self._bus = bus
        self._embedder = EmbedderClient(bus)
        self._cache_file = cache_file
        self._profile = profile
        self._space: embedder.VectorSpace = "routing" if profile.adapter else "plain"
        self._cache: VectorCache | None = None
        self._catalog = Catalog()
        self._compared: Comparison | None = None
        """The comparison with this catalog, or with the one before it."""
        self._words: tuple[Catalog, CatalogWords] | None = None
        """The words of the catalog that was prepared last."""
        self._has_model = False
        self._need = trio.Event()
        self._is_warm_soon = False
        self._attempt = trio.CancelScope()

    @property
    def percent(self) -> int:
        """The share of the catalog's texts that have vectors, in percent."""
        if not self._wanted:
            return 100
        # Rounded down, so that 9999 of 10,000 are not 100 %.
        return int(100 * (self._wanted - self._missing) / self._wanted)

    def catalog_changed(self, catalog: Catalog) -> None:
        """Use `catalog` for later messages, as soon as its triggers are embedded."""
        self._catalog = catalog
        if self.state == "ready":
            self.state = "cold"
            self._need.set()
        elif self.state == "loading" and self._missing >= PARTLY_FROM:
            # The attempt could take minutes more, for texts that the new catalog no longer has. The
            # vectors computed so far are saved.
            self._attempt.cancel()

    async def follow(self) -> None:
        """Compute missing vectors whenever they are needed, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, nursery)
            nursery.start_soon(self._contained_prepare)

    async def _contained_prepare(self) -> None:
        # Without vectors routing abstains, which is better than no registry.
        while True:
            await contained("prepare", self._prepare, log=log)
            self.state, self.reason = "unusable", "capd failed over the vectors; its log says where"
            self._compared, self._has_model = None, False

    async def compared(
        self, texts: Sequence[str], waits: float = 0.0
    ) -> "tuple[list[Vectors], Comparison]":
        """Return the vectors of `texts`, and the `Comparison` of such vectors with the catalog.

        `waits` is how many seconds the caller can wait. If that is a second or more, the model may
        take `RENEWING_TIMEOUT` instead of `MESSAGE_TIMEOUT`.

        Raises:
            NotReadyError: the model, or the vectors to compare with, are not loaded, or the model
                did not answer in time.
        """
        compared = self._compared
        if not self._has_model or compared is None:
            self._need.set()
            raise NotReadyError
        # A thread has imported it while it made `compared`; here the import would stop all calls
        # for 60 ms.
        import numpy as np  # noqa: PLC0415 - a daemon without turns does not need it

        is_renewing = self.state != "ready"
        # A model that was just loaded also has to embed the texts of the tools.
        timeout = RENEWING_TIMEOUT if is_renewing or waits >= RENEWING_TIMEOUT else MESSAGE_TIMEOUT
        timeout += PART_TIMEOUT * (len(texts) - 1)
        try:
            reply = await self._embedder.embed(list(texts), timeout=timeout, space=self._space)
        except ActorUnavailableError as error:
            if is_renewing:
                # The embedder is busy with the catalog's texts. If it is gone, the requests for
                # them fail too.
                raise NotReadyError from None
            self._lost_embedder(_reason_of(error))
            raise NotReadyError from None
        if not isinstance(reply, embedder.TextsEmbedded):
            self._lost_embedder("it is loading")
            raise NotReadyError
        vectors = np.frombuffer(reply.vectors, dtype="<f4").reshape(len(texts), -1)
        return list(vectors), compared

    async def until_ready(self, patient_until: float) -> bool:
        """Wait for the model and the vectors until the time `patient_until`, by trio's clock.

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

    async def _listen(self, nursery: trio.Nursery) -> None:
        async with self._bus.subscribe(HINTS, "embedder.exited", "session.started") as hints:
            async for hint in hints:
                if isinstance(hint, SessionStarted):
                    if hint.may_compare and not self._is_warm_soon:
                        self._is_warm_soon = True
                        nursery.start_soon(self._warm_up_soon)
                    continue
                self._has_model = False
                if not hint.expected and self.state != "unusable":
                    self.reason = (
                        f"its process ended ({_exit_of(hint.returncode)}); another one starts"
                    )
                if self.state == "ready":
                    self.state = "cold"
                    if not hint.expected:
                        self._need.set()
                elif self.state == "loading":
                    # Its replies are lost with the process; do not wait for their timeout.
                    self._need.set()
                    self._attempt.cancel()

    async def _warm_up_soon(self) -> None:
        """Load the model `WARM_UP_AFTER` seconds after a session's start.

        By then, most clients have sent their first requests, and most users no message yet.
        """
        await trio.sleep(WARM_UP_AFTER)
        self._is_warm_soon = False
        self._need.set()

    async def _prepare(self) -> None:
        """Start the embedder and compute the missing vectors, whenever they are needed."""
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
                    made = await self._prepared(catalog)
            except ActorUnavailableError as error:
                if isinstance(error, AskTimeoutError) and not isinstance(error, AskLostError):
                    self._bus.publish(embedder.EmbedderStuck())
                self.state, self.reason, self._has_model = "cold", _reason_of(error), False
                log.warning("embedder_not_ready", reason=self.reason)
                # The embedder may be starting again, so try again without another message.
                await trio.sleep(TRY_AGAIN)
                self._need.set()
            except CapdError as error:
                self.state, self.reason, self._has_model = "unusable", str(error), False
                log.error("embedder_unusable", reason=self.reason)
            else:
                if made is None or catalog is not self._catalog:
                    self._need.set()
                    continue
                dropped, self._compared = [self._compared], made
                self.state, self.reason, self._has_model = "ready", "", True
                capabilities = len(catalog.winners)
                log.info("routing_ready", capabilities=capabilities)
                # Drop the references, so that `_finish` frees the memory: more than half of what a
                # daemon with one session uses.
                siblings = made.words.siblings
                del made, catalog
                await trio.to_thread.run_sync(_finish, dropped, siblings, self._cache, capabilities)

    async def _prepared(self, catalog: Catalog) -> "Comparison":
        """Return the comparison with `catalog`; load the model and compute the missing vectors."""
        words = await self._warm_up(catalog)
        return await self._compared_with(catalog, await self._of_catalog(catalog, words), words)

    async def _warm_up(self, catalog: Catalog) -> "CatalogWords":
        """Load the model. Return the words of `catalog`, which are read meanwhile.

        Raises:
            CapdError: the model cannot be loaded.
        """
        failed: CapdError | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_words, catalog)
            try:
                await self._load_model()
            except CapdError as error:
                # Raised below, so that the nursery does not wrap it in a group.
                failed = error
        if failed is not None:
            raise failed
        assert self._words is not None
        return self._words[1]

    async def _read_words(self, catalog: Catalog) -> None:
        if self._words is None or self._words[0] is not catalog:
            self._words = None
            read = partial(_catalog_words, self._profile, catalog.winners)
            self._words = catalog, await trio.to_thread.run_sync(read)

    async def _load_model(self) -> None:
        self._bus.publish(embedder.EmbedderNeeded())
        model = await self._embedder.warm_up(timeout=WARM_UP_TIMEOUT)
        if model.state != "ready":
            raise NotReadyError(model.reason)
        self._profile.check(
            model.model, model.quantisation, model.pooling, model.revision, model.adapter
        )

    async def _compared_with(
        self, catalog: Catalog, known: "Mapping[str, Vectors]", words: "CatalogWords"
    ) -> "Comparison":
        handed_over = [known]
        # The thread gets the only reference: freeing 10,000 capabilities' vectors takes 0.1 s.
        del known
        return await trio.to_thread.run_sync(
            _comparison, self._profile, catalog.winners, handed_over, words
        )

    async def all_vectors(self) -> "Mapping[str, Vectors]":
        """Return the vector of every text of this catalog; compute those that are missing.

        Raises:
            CapdError: the embedder did not compute them.
        """
        return await self._of_catalog(self._catalog)

    async def _of_catalog(
        self, catalog: Catalog, words: "CatalogWords | None" = None
    ) -> "Mapping[str, Vectors]":
        """Return the vector of every text of `catalog`; compute those that are missing.

        With `words`, and if `PARTLY_FROM` or more vectors are missing, messages are meanwhile
        compared with these words and with the vectors that exist.
        """
        below: Mapping[str, Vectors] = {}
        if self._users is not None:
            below = await self._users.all_vectors()
        # One caller at a time: catalogs of projects ask for the user's vectors too.
        async with self._turn:
            wanted = partial(_wanted, catalog, frozenset(self._preferred()), below)
            texts = await trio.to_thread.run_sync(wanted)
            return {**below, **await self._with_missing(catalog, texts, below, words)}

    async def _with_missing(
        self,
        catalog: Catalog,
        texts: list[str],
        below: "Mapping[str, Vectors]",
        words: "CatalogWords | None",
    ) -> "dict[str, Vectors]":
        cache = self._cache
        if cache is None:
            made_by = ROUTING if self._space == "routing" else MODEL
            cache = self._cache = await trio.to_thread.run_sync(
                VectorCache, self._cache_file, made_by.key, made_by.dimensions
            )
            if cache.reason:
                log.warning("vector_cache_ignored", reason=cache.reason)
        is_shipped = self._space == "routing"
        known = await trio.to_thread.run_sync(_known, catalog, texts, cache, is_shipped)
        missing = [text for text in texts if text not in known]
        self._wanted, self._missing = len(texts), len(missing)
        partial_words = words if len(missing) >= PARTLY_FROM else None
        update_at = 0
        fresh: dict[str, Vectors] = {}
        try:
            for text_batch in _batches(missing, RENEWING_BATCH if self._has_model else BATCH):
                if partial_words and len(known) >= update_at and _has_background(known):
                    # Next time only when twice as many vectors exist, because the work for a new
                    # comparison grows with all vectors.
                    update_at = 2 * len(known)
                    self._compared = await self._compared_with(
                        catalog, {**below, **known}, partial_words
                    )
                    self._has_model = True
                    log.info("routing_partly_ready", percent=self.percent)
                    await trio.to_thread.run_sync(partial_words.siblings.prepare)
                made = await self._embedder.vectors(
                    text_batch, timeout=BATCH_TIMEOUT, space=self._space
                )
                fresh.update(made)
                known.update(made)
                self._missing -= len(made)
                if len(fresh) >= SAVED_TOGETHER:
                    saved, fresh = fresh, {}
                    await trio.to_thread.run_sync(cache.put, saved)
        finally:
            # Save also what a failed attempt has computed.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(cache.put, fresh)
        return known


def _catalog_words(
    profile: RoutingProfile, capabilities: Sequence[CapabilitySpec]
) -> "CatalogWords":
    from capd.core.routing.deciding import catalog_words  # noqa: PLC0415 - 10 ms without turns

    return catalog_words(profile, capabilities, background_messages())


def _comparison(
    profile: RoutingProfile,
    capabilities: Sequence[CapabilitySpec],
    known: "list[Mapping[str, Vectors]]",
    words: "CatalogWords",
) -> "Comparison":
    """Return the comparison with the vectors in `known`.

    `known` is a list of one mapping. The mapping is removed from it, so that its memory is freed.
    """
    from capd.core.routing.deciding import comparison  # noqa: PLC0415 - as above

    return comparison(profile, capabilities, known.pop(), background_messages(), words)


def _finish(
    dropped: "list[Comparison | None]",
    siblings: "Siblings",
    cache: VectorCache | None,
    capabilities: int,
) -> None:
    """Do the work that messages do not wait for: free memory, and find similar capabilities.

    `dropped` holds the last reference to the previous comparison. `capabilities` is the number of
    capabilities in the catalog.
    """
    dropped.clear()
    siblings.prepare()
    if cache is not None:
        cache.rest()
    trim_after_load(capabilities)


def _wanted(
    catalog: Catalog, preferred: Collection[str], below: "Mapping[str, Vectors]"
) -> list[str]:
    """Return the texts that messages are compared with, the important ones first.

    Texts that have a vector in `below` are left out: for a project's catalog, `below` has the
    vectors of the user's catalog.
    """
    from capd.core.routing.scorers import texts_of  # noqa: PLC0415 - as above

    # Capabilities used before, then the project's own, then the rest in the order of the taps.
    ordered = sorted(
        catalog.winners,
        key=lambda each: (str(each.id) not in preferred, not project_of(each.id.tap)),
    )
    texts = [*background_messages(), *(text for each in ordered for text in texts_of(each))]
    return [text for text in dict.fromkeys(texts) if text not in below]


def _known(
    catalog: Catalog, texts: Sequence[str], cache: VectorCache, is_shipped: bool
) -> "dict[str, Vectors]":
    """Return the vectors of `texts` that are in the cache, or that capd or a tap ships.

    Shipped vectors are of the space `routing`. They are used only if `is_shipped`.
    """
    known: dict[str, Vectors] = dict(cache.get(texts))
    missing = {text for text in texts if text not in known}
    if not missing or not is_shipped:
        return known
    background = background_vectors()
    known.update({text: row for text, row in background.items() if text in missing})
    missing.difference_update(background)
    shipping = [tap for tap in catalog.taps if tap.vectors_digest]
    if not shipping or not missing:
        return known
    from capd.core.routing.scorers import texts_of  # noqa: PLC0415 - as above

    of_taps: dict[str, list[str]] = {}
    for each in catalog.winners:
        of_taps.setdefault(each.id.tap, []).extend(texts_of(each))
    counting = spoken_for(list(of_taps.items()), {STARTER})
    for tap in shipping:
        vectors = tap_vectors(tap)
        if vectors is not None:
            known.update(vectors.of(t for t in counting.get(tap.name, ()) if t in missing))
    return known


def _has_background(known: "Mapping[str, Vectors]") -> bool:
    return all(text in known for text in background_messages())


def _batches(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    """Yield batches of texts that are alike in length, so that little is padded."""
    for at in range(0, len(texts), SORTED_TOGETHER):
        together = sorted(texts[at : at + SORTED_TOGETHER], key=len)
        for within in range(0, len(together), size):
            yield together[within : within + size]


def _reason_of(error: CapdError) -> str:
    """Return why the model's process gave no vectors."""
    if isinstance(error, AskLostError):
        return "its process ended; another one starts"
    if isinstance(error, AskTimeoutError):
        return "its process did not answer in time; one that hangs is ended and replaced"
    return str(error)


def _exit_of(returncode: int) -> str:
    """Return how a process ended: by which signal, or with which exit code."""
    if -returncode in set(signal.Signals):
        return signal.Signals(-returncode).name
    return f"exit code {returncode}"
