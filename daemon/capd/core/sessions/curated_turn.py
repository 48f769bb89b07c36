"""What a turn brings of single tools: a few join the list, or are told where it does not follow.

The wish of a turn is the first few clear ones of the best k, whether they are on or not. So the
same message again brings nothing, and neither does one that is much like it. What has joined
stays in its place; the best k are the last to be evicted for it.
"""

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass

from capd.core.sessions.active_set import Grant


@dataclass(frozen=True, slots=True)
class Ranked:
    """One of the best k, best first."""

    grant: Grant
    is_clear: bool
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """What a turn brings, each best first."""

    joining: tuple[Grant, ...] = ()
    suggested: tuple[Grant, ...] = ()


def brought(
    ranked: Sequence[Ranked],
    most: int,
    *,
    on: Collection[Grant],
    room: int,
    told: Container[Grant],
) -> Brought:
    """Return what joins and what is told.

    `room` is how many the list has room for, 0 where the model does not see a longer one in time;
    `told` is what the model knows from an earlier turn.
    """
    clear = [each.grant for each in ranked if each.is_clear and not each.is_pinned]
    wanted = [grant for grant in dict.fromkeys(clear[:most]) if grant not in on]
    joining, others = wanted[: max(0, room)], wanted[max(0, room) :]
    return Brought(tuple(joining), tuple(grant for grant in others if grant not in told))
