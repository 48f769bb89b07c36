"""Plans a turn within a budget of tokens: what is switched on, and told.

    what a message may mean ──> what each would bring, counted ──> the best set that has room

What a message means is worth its score, the more the more its tools were used of late. Where
something cannot be counted its bytes are, which are never fewer: no plan is over its budget.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog
import trio

from capd.actors.session.memories import NoMemories, SessionMemories
from capd.actors.session.policy import rules_of
from capd.actors.session.services import SessionContext
from capd.core.memories.choosing import HEAD_TOKENS
from capd.core.memories.known import PricedMemory, tokens_of
from capd.core.memories.task_set import Part, TaskSet, best_set
from capd.core.routing.user_bars import REASON as SET_BY_USER
from capd.core.sessions.hook_context import TURN_TOKENS
from capd.core.sessions.session import SessionState
from capd.core.sessions.surface import described, renamed
from capd.runtime.peer import ActorUnavailableError
from capd_protos import curator as messages
from capd_protos import finder
from capd_protos.types import CapabilityId, Decision, WireName

ASK_TIMEOUT = 3.0
COUNT_TIMEOUT = 10.0
"""Seconds for a process that counts, where something was never counted before."""
UNKNOWN = "its tools are not known yet: capd index"

log = structlog.get_logger(actor="curator")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a turn may do."""

    capabilities: tuple[CapabilityId, ...] = ()
    tools: tuple[finder.CuratedTool, ...] = ()
    memories: tuple[PricedMemory, ...] = ()
    left_out: tuple[messages.LeftOut, ...] = ()
    tokens: int = 0


class TaskBudget:
    """The budgets of one session's turns."""

    def __init__(self, context: SessionContext, memories: SessionMemories | NoMemories) -> None:
        self._place = context.place
        self._state = context.state
        self._view = context.view
        self._memories = memories
        self._finder = context.services.finder
        self._environments = context.services.environments
        self._uses = context.services.uses

    async def plan(
        self, decision: Decision, tools: Sequence[finder.CuratedTool], budget: int
    ) -> Plan:
        """Return the best of what a message may mean within `budget` tokens."""
        granted = await self._granted(_meant(decision, self._state))
        known = [each for each in granted if each.is_known]
        memories = self._due([each.id for each in known], known)
        counted = await self._counted(known, tools)
        used = await self._used()
        scores = {each.id: each.score for each in decision.top}
        parts = [
            Part(
                _key(each.id),
                sum(self._tokens(hit, counted) for hit in each.tools),
                scores.get(each.id, 0.5) * _habit(each.tools, used),
            )
            for each in known
        ]
        singles = {
            each.hit.wire_name: Part(
                f"tool {each.hit.wire_name}",
                self._tokens(each.hit, counted),
                max(each.hit.score, 0.01) * _habit([each.hit], used),
            )
            for each in tools
        }
        brought = {each.id: {hit.wire_name for hit in each.tools} for each in known}
        parts += [part for name, part in singles.items() if not _bringing(name, brought)]
        worth = {each.key: each.worth for each in parts}
        parts += [
            Part(
                f"memory {each.key}",
                each.priced.cost,
                worth.get(needs, 1.0) * each.memory.priority * each.memory.confidence
                if each.memory.priority
                else 0.0,
                needs,
            )
            for each, needs in memories
        ]
        # The turn's own words, and the line above memories, come beside all of that.
        reserved = TURN_TOKENS + (HEAD_TOKENS if memories else 0)
        room = max(0, budget - reserved)
        found = best_set(parts, room)
        # What a capability brings is no part beside it, and one where the capability stays off.
        chosen = {each.key for each in found.chosen}
        rest = [
            part
            for name, part in singles.items()
            if (by := _bringing(name, brought)) and not chosen & {_key(each) for each in by}
        ]
        found = _with_more(found, best_set(rest, room - found.tokens))
        unknown = [
            messages.LeftOut("capability", str(each.id), None, UNKNOWN)
            for each in granted
            if not each.is_known
        ]
        plan = _planned(found, known, tools, [each for each, _ in memories])
        plan = replace(plan, left_out=(*unknown, *plan.left_out), tokens=plan.tokens + reserved)
        log.info(
            "turn_planned",
            session=self._place.key,
            chosen=[each.key for each in found.chosen],
            left_out=len(plan.left_out),
            tokens=plan.tokens,
        )
        return plan

    async def _granted(self, meant: list[CapabilityId]) -> list[finder.Granted]:
        if not meant:
            return []
        request = finder.ListGranted(
            meant,
            rules_of(self._view),
            self._environments.keys(self._place.key),
            self._place.project,
            self._place.domain,
        )
        try:
            return await self._finder.granted(request, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("turn_not_planned", session=self._place.key, reason=str(error))
            return [finder.Granted(each, [], is_known=False) for each in meant]

    def _due(
        self, capabilities: Iterable[CapabilityId], granted: Sequence[finder.Granted]
    ) -> list[tuple[PricedMemory, str]]:
        """Return what may be told, each with the capability that it is told with, if one."""
        found = [(each, "") for each in self._memories.due()]
        known = {each.key for each, _ in found}
        by_id = {each.id: each for each in granted}
        for id_ in capabilities:
            tools = [(hit.server, hit.name, hit.wire_name) for hit in by_id[id_].tools]
            for each in self._memories.of(id_, tools):
                if each.key not in known:
                    known.add(each.key)
                    found.append((each, _key(id_)))
        return found

    async def _counted(
        self, granted: Sequence[finder.Granted], tools: Sequence[finder.CuratedTool]
    ) -> dict[bytes, int]:
        hits = [*(hit for each in granted for hit in each.tools), *(each.hit for each in tools)]
        if not hits:
            return {}
        with trio.move_on_after(COUNT_TIMEOUT):
            return await self._memories.counted([self._listed(hit) for hit in hits])
        return {}

    def _listed(self, hit: finder.ToolHit) -> bytes:
        """Return a tool as it would be listed."""
        definition = renamed(hit.definition, hit.wire_name)
        note = self._memories.foreseen((hit.server, hit.name, hit.wire_name))
        return described(definition, note) if note else definition

    def _tokens(self, hit: finder.ToolHit, counted: dict[bytes, int]) -> int:
        return tokens_of(self._listed(hit).decode("utf-8", "replace"), counted)

    async def _used(self) -> dict[tuple[str, str], int]:
        return {(use.identity, use.tool): use.count for use in await self._uses.known()}


def _planned(
    found: TaskSet,
    granted: Sequence[finder.Granted],
    tools: Sequence[finder.CuratedTool],
    memories: Sequence[PricedMemory],
) -> Plan:
    keys = {each.key for each in found.chosen}
    return Plan(
        tuple(each.id for each in granted if _key(each.id) in keys),
        tuple(each for each in tools if f"tool {each.hit.wire_name}" in keys),
        tuple(each for each in memories if f"memory {each.key}" in keys),
        tuple(
            messages.LeftOut(*_named(part.key), part.tokens, reason)
            for part, reason in found.left_out
        ),
        found.tokens,
    )


def _meant(decision: Decision, state: SessionState) -> list[CapabilityId]:
    """Return what a message may mean and is off, the winner first."""
    winner = [decision.id] if decision.id is not None and decision.outcome == "activate" else []
    # What a person keeps from coming on by itself is suggested, and no more than that.
    suggested = () if decision.reason == SET_BY_USER else decision.suggested
    meant = dict.fromkeys([*winner, *suggested])
    return [each for each in meant if each not in state.active]


def _key(id_: CapabilityId) -> str:
    return f"capability {id_}"


def _named(key: str) -> tuple[Literal["capability", "tool", "memory"], str]:
    kind, _, name = key.partition(" ")
    if kind == "memory":
        return "memory", name.rpartition("@")[0]
    return ("tool" if kind == "tool" else "capability"), name


def _bringing(
    name: WireName, brought: Mapping[CapabilityId, Collection[WireName]]
) -> list[CapabilityId]:
    """Return the capabilities that would bring a tool."""
    return [id_ for id_, names in brought.items() if name in names]


def _with_more(found: TaskSet, more: TaskSet) -> TaskSet:
    return TaskSet((*found.chosen, *more.chosen), (*found.left_out, *more.left_out))


def _habit(hits: Sequence[finder.ToolHit], used: dict[tuple[str, str], int]) -> float:
    """Return how much more something is worth for what was used of it in the last day."""
    uses = sum(used.get((hit.identity, hit.name), 0) for hit in hits)
    return 1 + math.log2(1 + uses)
