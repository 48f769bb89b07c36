"""Chooses the call cards that fit into a turn's text, and writes that text for the model.

    For this message, by tool_call(name, arguments):
    - git__git_log(repo_path, max_count=10)  Shows the commit logs
    - git__git_show(repo_path, revision)
    6 more of git: tool_search.

A call card is a tool's signature, with or without its description. The best card comes first, with
its description, then the signatures of the next two. If room is left, signatures of further tools
follow, those used in the last day before others and short ones before long ones. The descriptions
of the second and third card are added last: a signature of ten tokens may save a search of a few
hundred.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from capd.core.index.token_costs import TokenCosts
from capd.core.sessions.hook_context import TURN_TOKENS, join_texts, short_name, tokens_of
from capd.core.tools.call_cards import CallCard
from capd_protos.types import CapabilityName, WireName

MOST_CARDS = 3
"""How many call cards of one turn may have a description."""
MOST_SIGNATURES = 12
"""How many tools one turn may name (docs/design/context.md)."""
SHORT_TOKENS = 30
"""The longest signature, in tokens, after the first three."""
USED_TOKENS = 48
"""The same limit for a tool that was used in the last day."""
RANK_TOKENS = 2
"""Each place in the ranking counts like this many tokens: a tool comes before the one ranked just
above it only if its signature is shorter by more than this."""
PERHAPS_TOKENS = 150
"""The most tokens for cards of tools that a message may mean, but does not clearly."""


@dataclass(frozen=True, slots=True)
class FittingCards:
    """The tools whose call cards fit into a text for the model, and that text."""

    names: tuple[WireName, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class RemainingTools:
    """The tools of a capability for which the conversation has no call card yet."""

    capability: CapabilityName
    names: frozenset[WireName]
    """The tools whose call cards this turn's text may have."""
    beyond: int
    """How many more tools there are, whose cards this turn's text cannot have."""
    finder: str
    """The name under which the client knows `tool_search`, which finds the remaining tools."""

    def hint(self, delivered: Sequence[WireName]) -> str:
        """Return `6 more of git: tool_search.` for the tools without a card; empty for none.

        `delivered` are the tools whose cards this turn's text has.
        """
        left = len(self.names.difference(delivered)) + self.beyond
        return f"{left} more of {short_name(self.capability)}: {self.finder}." if left else ""


def fitting_cards(
    cards: Sequence[CallCard],
    caller: str,
    costs: TokenCosts,
    *,
    beside: str = "",
    room: int = TURN_TOKENS,
    remaining: RemainingTools | None = None,
    used: Collection[WireName] = (),
    read_only_caller: str = "",
) -> FittingCards:
    """Return a text for the model with as many call cards as fit.

    `cards` are those of the tools that are on, the best first. `caller` is the name of the tool
    that calls them, `read_only_caller` of the one for read-only tools (empty if the client has
    none). `beside` is the other text of the turn, whose tokens count against `room` as well. A hint
    to the `remaining` tools is added if it fits. `used` are the tools that were used in the last
    day.
    """
    room -= tokens_of(f"{beside}\n", costs) if beside else 0
    head = _Head("For this message, by", caller, read_only_caller)
    return _Listing(head, costs, room, used, remaining).fitted(cards)


def possible_cards(
    cards: Sequence[CallCard],
    caller: str,
    costs: TokenCosts,
    *,
    room: int = PERHAPS_TOKENS,
    used: Collection[WireName] = (),
    read_only_caller: str = "",
) -> FittingCards:
    """Return a text with as many call cards as fit, for tools that the message may mean.

    The arguments are those of `fitting_cards`.
    """
    head = _Head("If it fits, by", caller, read_only_caller)
    return _Listing(head, costs, room, used).fitted(cards)


def further_cards(
    cards: Sequence[CallCard], costs: TokenCosts, room: int, used: Collection[WireName] = ()
) -> FittingCards:
    """Return the signatures of further tools for a search's answer, in at most `room` tokens."""
    return _Listing(_Head("Beside them"), costs, room, used).signatures(cards)


@dataclass(frozen=True, slots=True)
class _Head:
    """The line above call cards. It names the tool that calls the cards' tools."""

    words: str
    caller: str = ""
    read_only_caller: str = ""
    """The tool for read-only tools, if the client has one."""

    def over(self, cards: Sequence[str], read_only: Sequence[str]) -> str:
        """Return the lines of `cards` and of `read_only`, the cards of read-only tools.

        Each group is below a line that names the tool that calls them.
        """
        if not self.caller:
            return "\n".join((f"{self.words}:", *cards))
        if not cards and read_only:
            head = f"{self.words} {self.read_only_caller}(name, arguments):"
            return "\n".join((head, *read_only))
        second = (f"By {self.read_only_caller}:", *read_only) if read_only else ()
        return "\n".join((f"{self.words} {self.caller}(name, arguments):", *cards, *second))


@dataclass(slots=True)
class _Listing:
    """Collects the lines of one turn's call cards until the room is used up."""

    head: _Head
    costs: TokenCosts
    room: int
    used: Collection[WireName] = ()
    remaining: RemainingTools | None = None
    cards: list[CallCard] = field(default_factory=list)
    described: int = 0
    """How many of the cards have their descriptions: always the first ones."""

    def fitted(self, cards: Sequence[CallCard]) -> FittingCards:
        """Return a text with as many of `cards` as fit, best first."""
        for card in cards[:MOST_CARDS]:
            if self._has_room(self._text([*self.cards, card], self.described)):
                self.cards.append(card)
                self._describe(1)
        if not self.cards:
            return FittingCards()
        most = len(self.cards)
        self._fill_up(cards[MOST_CARDS:MOST_SIGNATURES])
        self._describe(most)
        return self._all()

    def signatures(self, cards: Sequence[CallCard]) -> FittingCards:
        """Return a text with the signatures of as many tools of `cards` as fit."""
        self._fill_up(cards[:MOST_SIGNATURES])
        return self._all() if self.cards else FittingCards()

    def _describe(self, most: int) -> None:
        while self.described < most and self._has_room(self._closed(self.cards, 1)):
            self.described += 1

    def _fill_up(self, cards: Sequence[CallCard]) -> None:
        sizes = [tokens_of(self._line(each), self.costs) for each in cards]

        def precedence(at: int) -> tuple[bool, int]:
            return not self._is_used(cards[at]), sizes[at] + RANK_TOKENS * at

        for at in sorted(range(len(cards)), key=precedence):
            longer = [*self.cards, cards[at]]
            most = USED_TOKENS if self._is_used(cards[at]) else SHORT_TOKENS
            if sizes[at] <= most and self._has_room(self._closed(longer)):
                self.cards = longer

    def _is_used(self, card: CallCard) -> bool:
        return card.name in self.used

    def _has_room(self, text: str) -> bool:
        return tokens_of(text, self.costs) <= self.room

    def _all(self) -> FittingCards:
        closed = self._closed(self.cards)
        text = closed if self._has_room(closed) else self._text(self.cards, self.described)
        return FittingCards(tuple(card.name for card in self.cards), text)

    def _closed(self, cards: Sequence[CallCard], more_described: int = 0) -> str:
        text = self._text(cards, self.described + more_described)
        if self.remaining is None:
            return text
        return join_texts(text, self.remaining.hint([card.name for card in cards]))

    def _text(self, cards: Sequence[CallCard], described: int) -> str:
        any_tool: list[str] = []
        read_only: list[str] = []
        for at, card in enumerate(cards):
            line = f"- {card.line if at < described else self._line(card)}"
            is_apart = card.is_read_only and self.head.read_only_caller
            (read_only if is_apart else any_tool).append(line)
        return self.head.over(any_tool, read_only)

    def _line(self, card: CallCard) -> str:
        # A tool that was used is likely to be called with its optional arguments again.
        return card.signature if self._is_used(card) else card.short_line
