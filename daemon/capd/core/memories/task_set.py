"""Chooses what to switch on and deliver for a task within a token budget.

This is a knapsack problem: parts with a size in tokens and a worth, of which some need another
one (a memory needs its capability or tool). A small set is solved exactly. For a large one only a
bounded number of states is kept, which bounds the time. The result is never worse than that of
taking the parts with the best worth per token first.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

MOST_STATES = 1000
MOST_OPTIONS = 32
"""The most combinations that are kept of one part with the parts that need it."""

NO_ROOM = "no room in the budget"
TOO_LARGE = "larger than the whole budget"
WITHOUT = "what it belongs to is left out"
NO_USE = "nothing speaks for it"

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TaskItem(Generic[K]):
    """A part that could help with a task: a tool, a capability or a memory."""

    key: K
    tokens: int
    worth: float
    """How much use is expected of the part, at least 0."""
    needs: K | None = None
    """The key of the part without which this one is useless; None for none."""


@dataclass(frozen=True)
class TaskSet(Generic[K]):
    """The parts that were chosen for a task, in the order in which they were offered."""

    chosen: tuple[TaskItem[K], ...] = ()
    left_out: tuple[tuple[TaskItem[K], str], ...] = ()
    """The other parts, each with the reason why it was left out."""

    @cached_property
    def tokens(self) -> int:
        """The tokens of the chosen parts together."""
        return sum(each.tokens for each in self.chosen)

    @cached_property
    def worth(self) -> float:
        """The worth of the chosen parts together: how much use is expected of them."""
        return sum(each.worth for each in self.chosen)


@dataclass(frozen=True, slots=True)
class _State:
    tokens: int
    worth: float
    taken: frozenset[int]


_EMPTY = _State(0, 0.0, frozenset())


def best_set(
    parts: Sequence[TaskItem[K]], budget: int, most_states: int = MOST_STATES
) -> TaskSet[K]:
    """Return the parts that together have the greatest worth and at most `budget` tokens.

    At most `most_states` partial solutions are kept at a time.
    """
    by_key = {each.key: at for at, each in enumerate(parts)}
    usable = [
        at
        for at, each in enumerate(parts)
        if each.worth > 0
        and 0 <= each.tokens <= budget
        and (each.needs is None or each.needs in by_key)
    ]
    roots = [at for at in usable if parts[at].needs is None]
    states = [_EMPTY]
    for root in roots:
        below = [at for at in usable if parts[at].needs == parts[root].key]
        options = _options(parts, root, below, budget)
        states = _kept(
            [*states, *(_joined(state, each) for state in states for each in options)],
            budget,
            most_states,
        )
    best = max(states, key=lambda each: (each.worth, -each.tokens))
    greedy = _greedy(parts, usable, budget)
    if greedy.worth > best.worth:
        best = greedy
    return _set(parts, best.taken, budget)


def _options(
    parts: Sequence[TaskItem[Any]], root: int, below: Sequence[int], budget: int
) -> list[_State]:
    """Return the combinations of the part `root` with any of the parts that need it.

    `below` are the indexes of these parts.
    """
    options = [_State(parts[root].tokens, parts[root].worth, frozenset({root}))]
    for at in below:
        more = _State(parts[at].tokens, parts[at].worth, frozenset({at}))
        options = _kept(
            [*options, *(_joined(each, more) for each in options)], budget, MOST_OPTIONS
        )
    return options


def _joined(one: _State, other: _State) -> _State:
    return _State(one.tokens + other.tokens, one.worth + other.worth, one.taken | other.taken)


def _kept(states: Sequence[_State], budget: int, most: int) -> list[_State]:
    """Return at most `most` of the partial solutions `states`.

    A state is dropped if another one has at most as many tokens and at least as much worth.
    """
    fitting = [each for each in states if each.tokens <= budget]
    fitting.sort(key=lambda each: (each.tokens, -each.worth))
    kept: list[_State] = []
    for each in fitting:
        if not kept or each.worth > kept[-1].worth:
            kept.append(each)
    if len(kept) <= most:
        return kept
    # Evenly spaced states, and always the last one, which has the greatest worth.
    step = len(kept) / most
    return [kept[min(len(kept) - 1, int((at + 1) * step) - 1)] for at in range(most)]


def _greedy(parts: Sequence[TaskItem[K]], usable: Sequence[int], budget: int) -> _State:
    """Return the solution that takes the parts with the best worth per token first."""
    state = _EMPTY
    keys: set[K] = set()
    waiting = sorted(usable, key=lambda at: -parts[at].worth / max(1, parts[at].tokens))
    while True:
        at = next(
            (
                each
                for each in waiting
                if state.tokens + parts[each].tokens <= budget
                and (parts[each].needs is None or parts[each].needs in keys)
            ),
            None,
        )
        if at is None:
            return state
        waiting.remove(at)
        keys.add(parts[at].key)
        state = _joined(state, _State(parts[at].tokens, parts[at].worth, frozenset({at})))


def _set(parts: Sequence[TaskItem[K]], taken: frozenset[int], budget: int) -> TaskSet[K]:
    chosen = tuple(parts[at] for at in sorted(taken))
    keys = {each.key for each in chosen}
    left_out = tuple(
        (each, _reason(each, keys, budget)) for at, each in enumerate(parts) if at not in taken
    )
    return TaskSet(chosen, left_out)


def _reason(part: TaskItem[K], chosen: set[K], budget: int) -> str:
    if part.worth <= 0:
        return NO_USE
    if part.tokens > budget:
        return TOO_LARGE
    return WITHOUT if part.needs is not None and part.needs not in chosen else NO_ROOM
