"""What a session costs in tokens. A count of None is not known."""

import msgspec

from capd_protos.types import ServerName, SessionKey


class TextsSent(msgspec.Struct, frozen=True):
    """Texts of one kind that were sent."""

    count: int = 0
    tokens: int | None = 0
    """The tokens of all texts that can be counted; None until all of these are counted."""
    uncounted: int = 0
    """How many of the texts can never be counted."""


class ListSent(msgspec.Struct, frozen=True):
    """A tool list that was sent to replace an earlier one."""

    at: float
    """Seconds since the epoch."""
    added: int
    removed: int
    tokens: int | None
    """The tokens from the first byte that differs from the earlier list to the end."""


class AllTools(msgspec.Struct, frozen=True):
    """What it would cost to list every tool that a session may use, as a plain aggregator does."""

    tools: int
    tokens: int | None
    unlisted: list[ServerName] = []
    """Servers that have never been asked for their tools, which are not included."""


class SessionTokens(msgspec.Struct, frozen=True):
    """The tokens of one session: what it lists, what capd adds, and what a full list would take."""

    key: SessionKey
    client: str
    mode: str
    is_counting: bool
    """Whether something that was sent is still to be counted."""
    tools: int | None
    """How many tools the client was sent; None if it never asked."""
    list_tokens: int | None
    own_tokens: int | None
    """The part of `list_tokens` that capd's own tools take."""
    instructions: int | None
    """The tokens of the `instructions` that the client was sent."""
    surface: int | None
    """`list_tokens` plus `instructions`."""
    everything: AllTools | None
    saved: int | None
    """The tokens of `everything` minus `surface`; negative if the surface is larger."""
    turns: TextsSent
    """The texts that the model was given with the user's messages."""
    searches: TextsSent
    """The answers of `tool_search`."""
    answers: TextsSent
    """The answers of `capability`."""
    changes: TextsSent
    """The parts of replaced tool lists that the model had to read again."""
    added: int | None
    """`turns`, `searches`, `answers` and `changes` added up."""
    net: int | None
    """`saved` minus `added`."""
    last_changes: list[ListSent] = []
    """The newest of the replaced lists."""
