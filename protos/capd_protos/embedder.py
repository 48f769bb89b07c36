"""Messages of the embedder, which turns text into vectors, or says why it cannot."""

from typing import Literal

import msgspec

EmbedderState = Literal["cold", "loading", "ready", "unusable"]
VectorSpace = Literal["plain", "routing"]
"""`plain`: vectors of the model as it is. `routing`: vectors of the model with low-rank changes,
which routing uses. Only vectors of the same space can be compared."""


class WarmUp(msgspec.Struct, frozen=True, tag="embedder.warm_up"):
    """Load the model if it is not loaded; the answer comes when it is ready or has failed."""


class EmbedTexts(msgspec.Struct, frozen=True, tag="embedder.embed"):
    """Turn each text into a vector. Texts may be a user's words and are never stored."""

    texts: list[str]
    space: VectorSpace = "plain"


class DescribeEmbedder(msgspec.Struct, frozen=True, tag="embedder.describe"):
    """Report the embedder's state.

    Asking does not count as use, so it does not keep the model loaded.
    """


class KeepModel(msgspec.Struct, frozen=True, tag="embedder.keep"):
    """Mark the model as used, so that it stays loaded, and report the embedder's state.

    A model that is not loaded stays so.
    """


class TextsEmbedded(msgspec.Struct, frozen=True, tag="embedder.embedded"):
    """Reply to `EmbedTexts`: the vectors, one for each text, in the same order."""

    vectors: bytes
    """Little-endian float32, `len(texts)` rows of `dimensions`, each of length 1."""
    dimensions: int


class EmbedderDescribed(msgspec.Struct, frozen=True, tag="embedder.described"):
    """The reply to `WarmUp`, `DescribeEmbedder` and `KeepModel`: the embedder's state."""

    state: EmbedderState
    model: str
    revision: str
    quantisation: str
    pooling: str
    dimensions: int
    pid: int
    rss_bytes: int
    reason: str = ""
    """Why it is unusable; empty if it is usable."""
    adapter: str = ""
    """The sha256 of the low-rank changes that make the space `routing`."""


class EmbedderRefused(msgspec.Struct, frozen=True, tag="embedder.refused"):
    """Reply to `EmbedTexts` without vectors.

    `code` says why: `loading`, `unusable` or `too_many`.
    """

    code: str
    message: str


class EmbedderNeeded(msgspec.Struct, frozen=True, tag="embedder.needed"):
    """Event: somebody needs the embedder. Its supervisor starts its process if none is running."""


class EmbedderStuck(msgspec.Struct, frozen=True, tag="embedder.stuck"):
    """Event: the embedder does not answer. Its supervisor kills the process."""


class EmbedderExited(msgspec.Struct, frozen=True, tag="embedder.exited"):
    """Event: the embedder's process has exited."""

    returncode: int
    expected: bool
    """Whether it exited because nobody needed it."""


Request = WarmUp | EmbedTexts | DescribeEmbedder | KeepModel
Reply = TextsEmbedded | EmbedderDescribed | EmbedderRefused
Event = EmbedderNeeded | EmbedderStuck | EmbedderExited
