"""What a session costs in tokens; `None` is what is not known."""

import msgspec

from capd_protos.types import ServerName, SessionKey


class TextsSent(msgspec.Struct, frozen=True):
    """What was sent of one kind."""

    count: int = 0
    tokens: int | None = 0
    """Of all that are counted; None while one is yet to be."""
    uncounted: int = 0
    """How many never will be."""


class ListSent(msgspec.Struct, frozen=True):
    """A list of tools that was sent in place of another one."""

    at: float
    """Seconds since the epoch."""
    added: int
    removed: int
    tokens: int | None
    """What lies at or behind the first byte that the list before did not have."""


class Everything(msgspec.Struct, frozen=True):
    """All tools that a session may have, as a plain aggregator lists them."""

    tools: int
    tokens: int | None
    unlisted: list[ServerName] = []
    """Servers that were never asked for theirs: what they have is not in it."""


class SessionTokens(msgspec.Struct, frozen=True):
    """One session."""

    key: SessionKey
    client: str
    mode: str
    is_counting: bool
    tools: int | None
    """How many the client was told of; None where it never asked."""
    list_tokens: int | None
    own_tokens: int | None
    """The part of `list_tokens` that is capd's own tools."""
    instructions: int | None
    surface: int | None
    """`list_tokens` and `instructions` together."""
    everything: Everything | None
    saved: int | None
    """How much smaller `surface` is than `everything`; below 0 is a loss."""
    turns: TextsSent
    searches: TextsSent
    answers: TextsSent
    changes: TextsSent
    added: int | None
    """`turns`, `searches`, `answers` and `changes` together."""
    net: int | None
    """`saved` without `added`."""
    last_changes: list[ListSent] = []
