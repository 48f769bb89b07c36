"""What was delivered in each conversation of a session's client.

Deliveries are texts for the model: the index of capabilities, skills, memories, and call cards. A
call card says in one line how to call a tool.

    no id yet ──the first id──> the conversation gets that id
    current ──another id──> that conversation becomes current, and is created if it is new

An editor may have many chats on one connection and switch between them. In Claude Code, `/clear`
starts a conversation with another id.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from capd.core.memories.delivery import DEFAULT_BUDGET, MemoryDelivery
from capd.core.sessions.active_set import Grant
from capd.core.sessions.session_record import SessionRecord
from capd_protos.types import CapabilityId, WireName

MOST_CARDS = 200
"""How many call cards are remembered for one conversation. A forgotten one may be sent again."""
MOST = 32
"""How many conversations of a session are remembered. The least recently used is forgotten first.
If it continues later, its model gets the same texts again."""


def card_key(grant: Grant, definition: bytes) -> tuple[Grant, str]:
    """Return the key by which a conversation remembers a tool's call card.

    It is the tool, with a digest of its definition.
    """
    return grant, hashlib.blake2b(definition, digest_size=8).hexdigest()


@dataclass(slots=True)
class Conversation:
    """What the model of one conversation has been given."""

    id: str = ""
    """The client's own id; empty until a hook has sent it."""
    memories: MemoryDelivery = field(default_factory=MemoryDelivery)
    is_bootstrapped: bool = False
    """Whether the model has got the project's bootstrap files."""
    is_index_delivered: bool = False
    """Whether the model has got the index."""
    suggested: tuple[CapabilityId, ...] = ()
    """The capabilities that were suggested last."""
    cards: dict[tuple[Grant, str], None] = field(default_factory=dict)
    """The call cards that the model has, each by its tool and a digest of the tool's definition."""
    unusable: set[CapabilityId] = field(default_factory=set)
    """Capabilities that fit but cannot be switched on, as the model was told."""

    skills: dict[WireName, None] = field(default_factory=dict)
    """The skills that were delivered to the model."""

    def note_cards(self, delivered: Iterable[tuple[Grant, str]]) -> None:
        """Note which call cards were delivered; only the newest `MOST_CARDS` are remembered."""
        self.cards.update(dict.fromkeys(delivered))
        while len(self.cards) > MOST_CARDS:
            del self.cards[next(iter(self.cards))]


class Conversations:
    """The conversations of one session, one of which is current."""

    __slots__ = ("_budget", "_named", "current")

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        """Create it. `budget` is how many tokens of memories each conversation may get."""
        self._budget = budget
        self._named: OrderedDict[str, Conversation] = OrderedDict()
        self.current = Conversation(memories=MemoryDelivery(budget))
        """The conversation of the user's last message."""

    def saved_fields(self) -> dict[str, Any]:
        """Return the fields of a session's saved record that describe the current conversation."""
        current = self.current
        return {
            "conversation": current.id,
            "memories": list(current.memories.delivered),
            "memory_tokens": current.memories.spent,
            "is_bootstrapped": current.is_bootstrapped,
            "is_index_told": current.is_index_delivered,
        }

    def restore(self, record: SessionRecord) -> None:
        """Make the conversation in `record` current."""
        # Notes in tool descriptions are shown again, and `spent` counts their tokens already.
        spent = max(self.current.memories.spent, record.memory_tokens)
        delivered = dict.fromkeys(record.memories)
        self.make_current(
            Conversation(
                record.conversation,
                MemoryDelivery(self._budget, spent, delivered),
                record.is_bootstrapped,
                record.is_index_told,
            )
        )

    def follow(self, budget: int) -> None:
        """Change the token budget for memories of every conversation to `budget`.

        Earlier deliveries stay noted.
        """
        self._budget = budget
        for each in (self.current, *self._named.values()):
            each.memories.budget = budget

    def continue_in(self, id_: str) -> None:
        """Make the conversation with this id current. Without an id nothing changes."""
        if not id_ or id_ == self.current.id:
            return
        if not self.current.id:
            self.current.id = id_
        known = self._named.get(id_)
        if known is None and self.current.id != id_:
            known = Conversation(id_, MemoryDelivery(self._budget))
        self.make_current(known or self.current)

    def make_current(self, conversation: Conversation) -> None:
        """Make `conversation` current, and remember it if it has an id."""
        self.current = conversation
        if not conversation.id:
            return
        self._named[conversation.id] = conversation
        self._named.move_to_end(conversation.id)
        if len(self._named) > MOST:
            self._named.popitem(last=False)
