"""What clients do with a list of tools that changes, and what follows for a session's surface.

The facts are data (`clients.toml`); this is how they are used. A client that is not in the table
is taken for one that lists again, until it was seen not to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from capd.core.globs import matches
from capd.core.tools.names import LIMIT

Relists = Literal["before_turn", "mid_turn", "lag", "never"]
Mode = Literal["dynamic", "stable", "pass-through"]

BYTES_PER_TOKEN = 3.5
"""Of tool definitions in JSON; only for asking whether everything fits."""
CHANGING_TOKENS = 3_000
"""Of all tools: over it a list that changes costs more than one that does not (bench/tokens), as
the client sends each change, and all that its prompt has behind the list, to its model anew."""
APPENDED_TOKENS = 16_000
"""The same where the client adds tools at the end of its prompt: only they are paid for."""
_LONGEST_PREFIX = "mcp__capd__"
"""Of those that are known: what is left room for where nobody knows."""
_SHORTEST_NAME = 24
"""Below it nothing but a hash would be left of a name."""


@dataclass(frozen=True, slots=True)
class ClientTraits:
    """One line of the table."""

    names: tuple[str, ...] = ()
    """What it calls itself, in its handshake or towards the shim; with the shell's globs."""
    relists: Relists = "mid_turn"
    """When a changed list reaches its model: in the same turn, from the next turn on, one model
    response late, or never."""
    stateless_relists: bool = False
    """Whether it was seen to follow the list in the stateless generation too."""
    appends: bool = False
    """Whether a tool that comes later stands behind what its model has read, and not before it."""
    name_limit: int = LIMIT
    """Most characters of a name, its own prefix included."""
    tool_limit: int = 128
    prefix: str | None = None
    """What it puts before a tool's name; empty where that is nothing, None where unknown."""
    reads_instructions: bool = True
    """Whether what its server says of itself reaches its model; where it does not, a prompt hook
    brings it."""
    context: int = 200_000
    """Tokens that its models take."""
    identity: tuple[str, ...] = ()
    """The variables by which its servers and hooks learn which conversation it is."""
    mode: str = "auto"
    """What the user has set for it."""
    is_relists_set: bool = False
    """Whether `relists` is the user's own word, which outweighs what was seen."""
    title: str = ""
    """What a person calls it."""

    @property
    def wire_limit(self) -> int:
        """Return how long a name on the wire may be."""
        # Providers take 64 characters, however many a client does, and count its prefix as well.
        prefix = _LONGEST_PREFIX if self.prefix is None else self.prefix
        return max(_SHORTEST_NAME, min(LIMIT, self.name_limit) - len(prefix))


def traits_of(table: Mapping[str, ClientTraits], names: Iterable[str]) -> tuple[str, ClientTraits]:
    """Return the line for a client that is known by any of `names`, and the line's own name."""
    for name in names:
        folded = name.casefold()
        for key, traits in table.items():
            if folded and any(_is_named(folded, each) for each in (key, *traits.names)):
                return key, traits
    return "", ClientTraits()


def _is_named(folded: str, pattern: str) -> bool:
    return folded == pattern.casefold() or matches(folded, pattern.casefold())


@dataclass(frozen=True, slots=True)
class Plan:
    """How a session's surface is to be, and why."""

    mode: Mode
    reason: str
    is_hearsay: bool = False
    """Whether it rests on what the table says of the client alone, which a later version of the
    client may not be bound by."""


def plan(
    wanted: str,
    traits: ClientTraits,
    *,
    is_stateless: bool = False,
    was_seen: bool | None = None,
    size_bytes: int | None = None,
    known_bytes: int = 0,
    share: float = 0.1,
) -> Plan:
    """Return the mode for a session.

    `was_seen` says whether the client was seen to list again, None where nobody knows yet.
    `size_bytes` is all that it could be shown, None where that is not known; `known_bytes` what
    is known of it.
    """
    was_seen = None if traits.is_relists_set else was_seen
    chosen = wanted if wanted != "auto" else traits.mode
    if chosen == "pass-through":
        limit = traits.context * share
        if size_bytes is not None and size_bytes / BYTES_PER_TOKEN <= limit:
            return Plan("pass-through", f"everything fits into {limit:.0f} tokens")
        why = "not every server's tools are known" if size_bytes is None else "too much for it"
        automatic = _automatic(traits, known_bytes, is_stateless=is_stateless, was_seen=was_seen)
        return Plan(automatic.mode, f"pass-through was set: {why}; {automatic.reason}")
    if chosen == "dynamic":
        return Plan("dynamic", "set by the user")
    if chosen == "stable":
        return Plan("stable", "set by the user")
    return _automatic(traits, known_bytes, is_stateless=is_stateless, was_seen=was_seen)


def _automatic(
    traits: ClientTraits, known_bytes: int, *, is_stateless: bool, was_seen: bool | None
) -> Plan:
    if is_stateless and not traits.stateless_relists:
        return Plan("stable", "a list of the stateless era does not change")
    if was_seen is False:
        return Plan("stable", "the client was seen not to list again")
    if traits.relists == "never" and not was_seen:
        reason = "the client is known not to list again"
        return Plan("stable", reason, is_hearsay=not traits.is_relists_set)
    limit = APPENDED_TOKENS if traits.appends else CHANGING_TOKENS
    if known_bytes / BYTES_PER_TOKEN > limit:
        return Plan("stable", f"over {limit} tokens of tools: a changing list would cost more")
    return Plan("dynamic", "the client lists again")


class RelistWatch:
    """Whether a client follows its list, by what it does after it was told of a change.

    One that lists anew with every turn follows it as well, told or not.
    """

    TURNS = 2
    """Turns that may pass with a change that was not asked for: one may race with its hook."""
    UNASKED = 2
    """Lists, each after a turn of its own, that nobody asked for: one may be a new connection's."""

    def __init__(self) -> None:
        self.was_seen: bool | None = None
        """True once it has listed again, False once it has let the turns pass."""
        self._is_behind = False
        self._turns = 0
        self._has_turned = False
        self._unasked = 0

    @property
    def is_behind(self) -> bool:
        """Whether it was told of a change and has not listed since."""
        return self._is_behind

    def changed(self) -> None:
        """Note that the client was told of a change."""
        if not self._is_behind:
            self._is_behind, self._turns = True, 0

    def listed(self) -> None:
        """Note that the client listed."""
        self._unasked += self._has_turned and not self._is_behind
        self._has_turned = False
        if self._is_behind or self._unasked >= self.UNASKED:
            self._is_behind, self.was_seen = False, True

    def turned(self) -> None:
        """Note that a user's message came."""
        self._turns += 1
        self._has_turned = True
        if self._is_behind and self._turns >= self.TURNS and self.was_seen is None:
            self.was_seen = False
