"""Decides which memories a conversation gets: each once, within a token budget.

    known ──its capability or tool is on──> due ──a text for the model──> delivered, once
                                             └──no room in the budget──> left out, and counted

Notes in the descriptions of tools count against the same budget.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from capd.core.memories.known_memories import PricedMemory
from capd.core.memories.selection import HEAD_TOKENS, Priced, chosen
from capd.core.memories.wording import delivered_text, entry

DEFAULT_BUDGET = 2000


@dataclass(frozen=True, slots=True)
class MemoryText:
    """A text with memories for the model, and which memories these are."""

    text: str = ""
    memories: tuple[PricedMemory, ...] = ()


@dataclass(slots=True)
class MemoryDelivery:
    """Which memories one conversation has got, and how many tokens of its budget they took."""

    budget: int = DEFAULT_BUDGET
    spent: int = 0
    """The tokens of everything delivered, including notes in the descriptions of tools."""
    delivered: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)

    def due(self, known: Iterable[PricedMemory]) -> list[PricedMemory]:
        """Return those of `known` that were neither delivered nor left out, each once."""
        new = (
            each
            for each in known
            if each.key not in self.delivered and each.key not in self.left_out
        )
        return list({each.key: each for each in new}.values())

    def deliver(
        self, known: Iterable[PricedMemory], most_characters: int | None = None
    ) -> MemoryText:
        """Return a text with those of `known` that were not delivered yet, and note them.

        A memory that does not fit into the budget is left out for good, or, if its tokens are not
        counted yet, put off until a later text. A memory that fits into the budget and not into
        `most_characters` is put off, too.
        """
        due = {id(each.priced): each for each in self.due(known)}
        found = chosen([each.priced for each in due.values()], self.budget - self.spent)
        for each in found.left_out:
            if due[id(each)].is_priced:
                self.left_out[due[id(each)].key] = None
        fitting = _fitting(found.delivered, most_characters)
        for each in fitting:
            self.delivered[due[id(each)].key] = None
            self.spent += each.cost
        if fitting:
            self.spent += HEAD_TOKENS
        text = delivered_text(entry(each.memory) for each in fitting)
        return MemoryText(text, tuple(due[id(each)] for each in fitting))

    def leave_out(self, known: Iterable[PricedMemory]) -> None:
        """Note that none of `known` is ever delivered in this conversation."""
        self.left_out.update(dict.fromkeys(each.key for each in known))

    def take_room(self, tokens: int) -> bool:
        """Take `tokens` of the budget for a memory in a tool's description.

        Return False, and take none, if fewer are left.
        """
        if self.spent + tokens > self.budget:
            return False
        self.spent += tokens
        return True


def _fitting(priced: Iterable[Priced], most_characters: int | None) -> list[Priced]:
    if most_characters is None:
        return list(priced)
    kept: list[Priced] = []
    for each in priced:
        text = delivered_text(entry(one.memory) for one in (*kept, each))
        if len(text) <= most_characters:
            kept.append(each)
    return kept
