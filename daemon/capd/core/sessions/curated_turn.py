"""Decides which single tools a turn switches on, and which it only suggests to the model.

A turn is one message of the user. Curation finds the best tools for the message (the ranked ones),
and marks those that fit it clearly. A turn selects the best few clear tools, and tools that are on
already count among these. So if the same message comes again, it adds nothing. A tool that is on
keeps its place in the list. If the set of single tools is full, tools that are not among the ranked
ones are evicted first, and never one that the turn has selected.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from capd.core.sessions.active_set import Grant
from capd.core.sessions.session import SessionState, SingleTool, Step


@dataclass(frozen=True, slots=True)
class Ranked:
    """A tool that may help with a message, and whether it clearly fits."""

    tool: SingleTool
    is_clear: bool
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class TurnTools:
    """The tools that a turn has switched on, and those that it suggests."""

    step: Step = field(default_factory=Step)
    suggested: tuple[Grant, ...] = ()
    """The tools to suggest to the model by name, the best first."""


def activate_ranked(
    state: SessionState,
    ranked: Sequence[Ranked],
    most: int,
    now: float,
    *,
    is_seen: bool,
    suggested_before: Container[Grant] = (),
) -> TurnTools:
    """Select the best `most` clear tools of `ranked`; switch them on, or suggest them.

    Pinned tools are left out. `is_seen` says whether the model sees an added tool before it
    answers. If it does, the selected tools are switched on, and those for which the list has no
    room are suggested. If it does not, each selected tool that is not listed is suggested, and
    nothing is switched on. Tools in `suggested_before` are not suggested again.
    """
    clear = [each.tool for each in ranked if each.is_clear and not each.is_pinned]
    wanted = {tool.grant: tool for tool in clear[: min(most, state.active.tool_cap)]}
    spared = list(dict.fromkeys((*wanted, *(each.tool.grant for each in ranked))))
    step, tried = Step(), set[Grant]()
    # Computed anew in each round: an eviction may have made room on the list.
    while is_seen and (joining := _missing(state, wanted, tried)[: state.surface.room]):
        tried.update(joining)
        joined = state.activate_tools([wanted[grant] for grant in joining], now, spared)
        step = step.then(joined)
    missing = _missing(state, wanted, tried)
    if not is_seen:
        listed = {shown.grant for shown in state.surface.listed}
        missing = [grant for grant in wanted if grant not in listed]
    return TurnTools(step, tuple(grant for grant in missing if grant not in suggested_before))


def activate_planned(
    state: SessionState, tools: Sequence[SingleTool], now: float, *, is_seen: bool
) -> TurnTools:
    """Switch `tools`, best first, on; suggest those that the model will not see on its list.

    `is_seen` says whether the model sees an added tool before it answers.
    """
    step = state.activate_tools(tools, now, [tool.grant for tool in tools])
    on = state.active.grants
    listed = {shown.grant for shown in state.surface.listed} if is_seen else set[Grant]()
    named = (tool.grant for tool in tools if tool.grant in on and tool.grant not in listed)
    return TurnTools(step, tuple(named))


def _missing(
    state: SessionState, wanted: Mapping[Grant, SingleTool], tried: Container[Grant]
) -> list[Grant]:
    on = state.active.grants
    return [grant for grant in wanted if grant not in on and grant not in tried]
