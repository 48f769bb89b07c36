"""Computes vectors for evaluation with the daemon's model, in this process; caches them if told."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capd.adapters import platform
from capd.adapters.model.minilm import MODEL, MiniLM
from capd.adapters.model.vector_cache import VectorCache

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

_BATCH = 64
_SAVED_EACH = 4096


class Vectorizer:
    """Embeds texts, each only once."""

    def __init__(self, cache_file: Path | None = None) -> None:
        self._known: dict[str, Vectors] = {}
        self._cache = VectorCache(cache_file, MODEL.key, MODEL.dimensions) if cache_file else None
        self._model: MiniLM | None = None

    @property
    def model(self) -> MiniLM:
        """The model, loaded at the first access."""
        if self._model is None:
            self._model = MiniLM(after_load=platform.trim_memory)
        return self._model

    def of(self, texts: Iterable[str]) -> "dict[str, Vectors]":
        """Return the unit vector of each text."""
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
            # As a cache and a tap keep them, so that a second run has the same numbers.
            vectors = self.model.embed(batch).astype("<f2").astype("<f4")
            found.update(zip(batch, vectors, strict=True))
        if self._cache is not None:
            self._cache.put(found)
            # Read back from the cache in its lower precision, so that the next run decides alike.
            found = self._cache.get(found)
        self._known.update(found)
