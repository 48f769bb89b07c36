"""Decides which single tools a turn adds to the list, or only names to the model.

A turn asks for the first few clear tools of the best k, whether they are on or not. So repeating
the message, or sending a similar one, adds nothing. A tool that has joined keeps its place. If the
set is full, tools that are not among the best k are evicted first, and never one that the turn asks
for.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from capd.core.sessions.active_set import Grant
from capd.core.sessions.session import SessionState, SingleTool, Step


@dataclass(frozen=True, slots=True)
class Ranked:
    """One of the best k tools."""

    tool: SingleTool
    is_clear: bool
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """The result for the tools of one turn."""

    step: Step = field(default_factory=Step)
    suggested: tuple[Grant, ...] = ()
    """The tools to name to the model, best first."""


def bring(
    state: SessionState,
    ranked: Sequence[Ranked],
    most: int,
    now: float,
    *,
    is_seen: bool,
    told: Container[Grant] = (),
) -> Brought:
    """Let at most `most` of `ranked`, the best k in order, join the list.

    `is_seen` says whether the model sees a longer list in time. If not, and if the list is full, a
    tool is suggested instead, unless it was `told` before; also one that is on, if the model does
    not see it listed.
    """
    clear = [each.tool for each in ranked if each.is_clear and not each.is_pinned]
    wanted = {tool.grant: tool for tool in clear[: min(most, state.active.tool_cap)]}
    spared = list(dict.fromkeys((*wanted, *(each.tool.grant for each in ranked))))
    step, tried = Step(), set[Grant]()
    # Computed again: an eviction may have made room on the list.
    while is_seen and (joining := _missing(state, wanted, tried)[: state.surface.room]):
        tried.update(joining)
        joined = state.activate_tools([wanted[grant] for grant in joining], now, spared)
        step = step.then(joined)
    missing = _missing(state, wanted, tried)
    if not is_seen:
        listed = {shown.grant for shown in state.surface.listed}
        missing = [grant for grant in wanted if grant not in listed]
    return Brought(step, tuple(grant for grant in missing if grant not in told))


def bring_planned(
    state: SessionState, tools: Sequence[SingleTool], now: float, *, is_seen: bool
) -> Brought:
    """Switch all of `tools` on, best first, and name those that the model does not see listed."""
    step = state.activate_tools(tools, now, [tool.grant for tool in tools])
    on = state.active.grants
    listed = {shown.grant for shown in state.surface.listed} if is_seen else set[Grant]()
    named = (tool.grant for tool in tools if tool.grant in on and tool.grant not in listed)
    return Brought(step, tuple(named))


def _missing(
    state: SessionState, wanted: Mapping[Grant, SingleTool], tried: Container[Grant]
) -> list[Grant]:
    on = state.active.grants
    return [grant for grant in wanted if grant not in on and grant not in tried]
