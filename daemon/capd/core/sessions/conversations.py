"""What was told in each conversation that a session's client has with a model.

    nobody has named it ──the first id──> it has that name
    another id ──> another conversation: it goes on where it was left, or has been told nothing

An editor has many chats on one connection and switches between them; `/clear` is another id too.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from capd.core.memories.telling import DEFAULT_BUDGET, Telling
from capd.core.sessions.active_set import Grant
from capd.core.sessions.session_record import SessionRecord
from capd_protos.types import CapabilityId, WireName

MOST_CARDS = 200
"""Call cards that are remembered in a conversation; one that is forgotten may be told again."""
MOST = 32
"""Conversations that are remembered. A forgotten one gets its texts again; the one left longest ago
is forgotten first."""


def card_key(grant: Grant, definition: bytes) -> tuple[Grant, str]:
    """Return what a conversation remembers of a card: another definition is another card."""
    return grant, hashlib.blake2b(definition, digest_size=8).hexdigest()


@dataclass(slots=True)
class Conversation:
    """One conversation."""

    id: str = ""
    """The client's own id; empty until a hook has brought it."""
    telling: Telling = field(default_factory=Telling)
    is_bootstrapped: bool = False
    """Whether the model has got the project's bootstrap files."""
    is_index_told: bool = False
    """Whether the model has got the index."""
    suggested: tuple[CapabilityId, ...] = ()
    """The capabilities that were suggested last."""
    cards: dict[tuple[Grant, str], None] = field(default_factory=dict)
    """The call cards that the model has got, each by its tool and a digest of its definition."""
    unusable: set[CapabilityId] = field(default_factory=set)
    """Capabilities of which was told that they fit and cannot be switched on."""

    skills: dict[WireName, None] = field(default_factory=dict)
    """The skills that the model has been told of."""

    def note_cards(self, told: Iterable[tuple[Grant, str]]) -> None:
        """Note which call cards the model has been told; the last ones are remembered."""
        self.cards.update(dict.fromkeys(told))
        while len(self.cards) > MOST_CARDS:
            del self.cards[next(iter(self.cards))]


class Conversations:
    """The conversations of one session, one of which is current."""

    __slots__ = ("_budget", "_named", "current")

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        """`budget` is the tokens for memories in each conversation."""
        self._budget = budget
        self._named: OrderedDict[str, Conversation] = OrderedDict()
        self.current = Conversation(telling=Telling(budget))
        """The one that was heard last."""

    def kept(self) -> dict[str, Any]:
        """Return the saved part of the current conversation, as members of the session's record."""
        current = self.current
        return {
            "conversation": current.id,
            "memories": list(current.telling.told),
            "memory_tokens": current.telling.spent,
            "is_bootstrapped": current.is_bootstrapped,
            "is_index_told": current.is_index_told,
        }

    def restore(self, record: SessionRecord) -> None:
        """Go on where the session was."""
        # Notes in descriptions are shown again, and their tokens were counted before.
        spent = max(self.current.telling.spent, record.memory_tokens)
        told = dict.fromkeys(record.memories)
        self.go_on(
            Conversation(
                record.conversation,
                Telling(self._budget, spent, told),
                record.is_bootstrapped,
                record.is_index_told,
            )
        )

    def follow(self, budget: int) -> None:
        """Use another budget; what was delivered stays delivered."""
        self._budget = budget
        for each in (self.current, *self._named.values()):
            each.telling.budget = budget

    def heard_in(self, id_: str) -> None:
        """Continue the conversation of this name; without a name the current one stays."""
        if not id_ or id_ == self.current.id:
            return
        if not self.current.id:
            self.current.id = id_
        known = self._named.get(id_)
        if known is None and self.current.id != id_:
            known = Conversation(id_, Telling(self._budget))
        self.go_on(known or self.current)

    def go_on(self, conversation: Conversation) -> None:
        """Continue a conversation that was named before."""
        self.current = conversation
        if not conversation.id:
            return
        self._named[conversation.id] = conversation
        self._named.move_to_end(conversation.id)
        if len(self._named) > MOST:
            self._named.popitem(last=False)
