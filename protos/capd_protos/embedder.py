"""Messages of the embedder: text in, vectors out, or the reason why not."""

from typing import Literal

import msgspec

EmbedderState = Literal["cold", "loading", "ready", "unusable"]


class WarmUp(msgspec.Struct, frozen=True, tag="embedder.warm_up"):
    """Load the model if it is not loaded, and answer when it is, or cannot be."""


class EmbedTexts(msgspec.Struct, frozen=True, tag="embedder.embed"):
    """Turn each text into a vector. Texts may be a user's words: they are kept nowhere."""

    texts: list[str]


class DescribeEmbedder(msgspec.Struct, frozen=True, tag="embedder.describe"):
    """Say how the embedder is. This is no use of it: who looks on keeps no model loaded."""


class KeepModel(msgspec.Struct, frozen=True, tag="embedder.keep"):
    """Count as used now, and say how the embedder is; it loads nothing."""


class TextsEmbedded(msgspec.Struct, frozen=True, tag="embedder.embedded"):
    """The vectors, one a text, in their order."""

    vectors: bytes
    """Little-endian float32, `len(texts)` rows of `dimensions`, each of length 1."""
    dimensions: int


class EmbedderDescribed(msgspec.Struct, frozen=True, tag="embedder.described"):
    """How the embedder is; the answer to `WarmUp` as well."""

    state: EmbedderState
    model: str
    revision: str
    quantisation: str
    pooling: str
    dimensions: int
    pid: int
    rss_bytes: int
    reason: str = ""
    """Why it is unusable."""


class EmbedderRefused(msgspec.Struct, frozen=True, tag="embedder.refused"):
    """No vectors, and why: `loading`, `unusable` or `too_many`."""

    code: str
    message: str


class EmbedderNeeded(msgspec.Struct, frozen=True, tag="embedder.needed"):
    """Somebody wants the embedder; who keeps its process starts it if it is down."""


class EmbedderStuck(msgspec.Struct, frozen=True, tag="embedder.stuck"):
    """The embedder has been asked and does not answer; who keeps its process ends it."""


class EmbedderExited(msgspec.Struct, frozen=True, tag="embedder.exited"):
    """The embedder's process is gone."""

    returncode: int
    expected: bool
    """True where it went because it was idle."""


Request = WarmUp | EmbedTexts | DescribeEmbedder | KeepModel
Reply = TextsEmbedded | EmbedderDescribed | EmbedderRefused
Event = EmbedderNeeded | EmbedderStuck | EmbedderExited
