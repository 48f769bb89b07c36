"""What one conversation was told, and what it may be told yet: each memory once, within a budget.

known ──its capability or tool is on──> due ──told──> told, and never again
                                         └──no room in the budget──> left out, and counted
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from capd.core.memories.choosing import HEAD_TOKENS, Priced, chosen
from capd.core.memories.known import PricedMemory
from capd.core.memories.wording import entry, told

DEFAULT_BUDGET = 2000


@dataclass(frozen=True, slots=True)
class MemoryText:
    """What is told at once."""

    text: str = ""
    memories: tuple[PricedMemory, ...] = ()


@dataclass(slots=True)
class Telling:
    """The memories of one conversation."""

    budget: int = DEFAULT_BUDGET
    spent: int = 0
    """Tokens of what was told, those of tools' descriptions included."""
    told: dict[str, None] = field(default_factory=dict)
    left_out: dict[str, None] = field(default_factory=dict)

    def due(self, known: Iterable[PricedMemory]) -> list[PricedMemory]:
        """Return which of `known` were neither told nor left out, each once."""
        new = (
            each for each in known if each.key not in self.told and each.key not in self.left_out
        )
        return list({each.key: each for each in new}.values())

    def tell(self, known: Iterable[PricedMemory], most_characters: int | None = None) -> MemoryText:
        """Return what is told of `known`; what the budget has no room for is left out.

        What `most_characters` have no room for stays due, and so does what is yet to be counted.
        """
        due = {id(each.priced): each for each in self.due(known)}
        found = chosen([each.priced for each in due.values()], self.budget - self.spent)
        for each in found.left_out:
            if due[id(each)].is_priced:
                self.left_out[due[id(each)].key] = None
        fitting = _fitting(found.told, most_characters)
        for each in fitting:
            self.told[due[id(each)].key] = None
            self.spent += each.cost
        if fitting:
            self.spent += HEAD_TOKENS
        text = told(entry(each.memory) for each in fitting)
        return MemoryText(text, tuple(due[id(each)] for each in fitting))

    def leave_out(self, known: Iterable[PricedMemory]) -> None:
        """Tell none of `known` in this conversation."""
        self.left_out.update(dict.fromkeys(each.key for each in known))

    def noted(self, tokens: int) -> bool:
        """Tell whether there is room for a note of `tokens`, and take it."""
        if self.spent + tokens > self.budget:
            return False
        self.spent += tokens
        return True


def _fitting(priced: Iterable[Priced], most_characters: int | None) -> list[Priced]:
    if most_characters is None:
        return list(priced)
    kept: list[Priced] = []
    for each in priced:
        text = told(entry(one.memory) for one in (*kept, each))
        if len(text) <= most_characters:
            kept.append(each)
    return kept
