"""Asks the embedder for vectors of texts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from capd.actor_clients.client import ANSWER_TIMEOUT, ActorClient
from capd.actor_clients.names import EMBEDDER
from capd.runtime.bus import AskTimeoutError
from capd_protos import embedder as messages
from capd_protos.codec import MsgpackCodec

if TYPE_CHECKING:
    from capd.core.routing.gates import Vectors

_EMBEDDER_DESCRIBED: MsgpackCodec[messages.EmbedderDescribed] = MsgpackCodec(
    messages.EmbedderDescribed
)
_TEXTS_EMBEDDED: MsgpackCodec[messages.TextsEmbedded | messages.EmbedderRefused] = MsgpackCodec(
    messages.TextsEmbedded | messages.EmbedderRefused
)


class EmbedderClient(ActorClient):
    """Asks the embedder for vectors of texts."""

    actor = EMBEDDER

    async def warm_up(self, *, timeout: float) -> messages.EmbedderDescribed:
        """Load the model; return when it is ready or cannot be loaded."""
        return await self._ask(messages.WarmUp(), _EMBEDDER_DESCRIBED, timeout)

    async def embed(
        self, texts: list[str], *, timeout: float, space: messages.VectorSpace = "plain"
    ) -> messages.TextsEmbedded | messages.EmbedderRefused:
        """Return one vector for each text: rows of little-endian float32, in one bytes object.

        Only vectors of the same `space` can be compared.
        """
        return await self._ask(messages.EmbedTexts(texts, space), _TEXTS_EMBEDDED, timeout)

    async def vectors(
        self, texts: Sequence[str], *, timeout: float, space: messages.VectorSpace = "plain"
    ) -> "dict[str, Vectors]":
        """Return the unit vector of each text.

        Raises:
            AskTimeoutError: no reply came in time, or the embedder refused.
        """
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

        reply = await self.embed(list(texts), timeout=timeout, space=space)
        if not isinstance(reply, messages.TextsEmbedded):
            raise AskTimeoutError(f"{self.actor} did not embed: {reply}")
        rows = np.frombuffer(reply.vectors, dtype="<f4").reshape(len(texts), reply.dimensions)
        return dict(zip(texts, rows, strict=True))

    async def describe(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.EmbedderDescribed:
        """Return the state of the model."""
        return await self._ask(messages.DescribeEmbedder(), _EMBEDDER_DESCRIBED, timeout)

    async def keep(self, *, timeout: float = ANSWER_TIMEOUT) -> messages.EmbedderDescribed:
        """Keep a loaded model loaded, by counting this call as a use; return the model's state.

        A model that is not loaded is not loaded by this.
        """
        return await self._ask(messages.KeepModel(), _EMBEDDER_DESCRIBED, timeout)
