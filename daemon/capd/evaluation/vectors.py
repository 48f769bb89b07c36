"""Computes vectors for evaluation with the daemon's model, in this process.

They can be cached in a file.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from capd.adapters import platform
from capd.adapters.model.minilm import ADAPTER_SHA256, MODEL, MiniLM, routing_adapter
from capd.adapters.model.vector_cache import VectorCache
from capd.core.routing.gates import RoutingProfile

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

_BATCH = 64
_SAVED_EACH = 4096


def vectorizer_for(profile: RoutingProfile, cache_file: Path | None = None) -> "Vectorizer":
    """Return a `Vectorizer` that computes the vectors which `profile` compares.

    With `cache_file` it also caches them there. If `profile` has an adapter, which changes the
    encoder, the cache is a second file beside it, with `.routing` after its name.

    Raises:
        ModelUnusableError: the changes of the encoder cannot be read.
        ProfileMismatchError: the profile was calibrated for another encoder.
    """
    profile.check(MODEL.id, MODEL.quantisation, MODEL.pooling, MODEL.revision, ADAPTER_SHA256)
    if not profile.adapter:
        return Vectorizer(cache_file)
    beside = cache_file.with_name(f"{cache_file.name}.routing") if cache_file else None
    return Vectorizer(beside, adapter=routing_adapter())


class Vectorizer:
    """Embeds texts, each only once."""

    def __init__(self, cache_file: Path | None = None, *, adapter: bytes = b"") -> None:
        """Create a vectorizer, which caches vectors in `cache_file` if that is given.

        `adapter` are the low-rank changes of the encoder; empty for the model as it is.
        """
        self._known: dict[str, Vectors] = {}
        self._adapter = adapter
        digest = hashlib.sha256(adapter).hexdigest() if adapter else ""
        key = replace(MODEL, adapter_sha256=digest).key
        self._cache = VectorCache(cache_file, key, MODEL.dimensions) if cache_file else None
        self._model: MiniLM | None = None

    @property
    def model(self) -> MiniLM:
        """The model, loaded at the first access."""
        if self._model is None:
            self._model = MiniLM(after_load=platform.trim_memory, adapter=self._adapter)
        return self._model

    def embed(self, texts: Sequence[str]) -> "Vectors":
        """Compute the unit vectors of `texts`, without the cache, as the rows of an array."""
        return self.model.embed(texts, is_changed=bool(self._adapter))

    def of(self, texts: Iterable[str]) -> "dict[str, Vectors]":
        """Return the unit vector of each text, by text."""
        wanted = list(dict.fromkeys(texts))
        if self._cache is not None:
            unknown = [text for text in wanted if text not in self._known]
            self._known.update(self._cache.get(unknown))
        missing = [text for text in wanted if text not in self._known]
        for at in range(0, len(missing), _SAVED_EACH):
            self._embed(missing[at : at + _SAVED_EACH])
        return {text: self._known[text] for text in wanted}

    def stacked(self, texts: Sequence[str]) -> "Vectors":
        """Return the vectors of `texts` as the rows of one array."""
        import numpy as np  # noqa: PLC0415 - the model brings it in

        found = self.of(texts)
        return np.stack([found[text] for text in texts])

    def _embed(self, texts: list[str]) -> None:
        found: dict[str, Vectors] = {}
        for at in range(0, len(texts), _BATCH):
            batch = texts[at : at + _BATCH]
            # In the precision of a cache and of a tap's file, so that a second run has the same
            # numbers.
            vectors = self.embed(batch).astype("<f2").astype("<f4")
            found.update(zip(batch, vectors, strict=True))
        if self._cache is not None:
            self._cache.put(found)
            # Read back from the cache in its lower precision, so that the next run decides alike.
            found = self._cache.get(found)
        self._known.update(found)
