"""Plans a turn within a token budget: what to switch on, and which memories to deliver.

    what a message may mean ──> the cost of each part, counted ──> the best set that fits

The worth of a capability is its score, increased if its tools were used recently. A capability that
is larger than the budget is not considered as a whole. Its single tools are, and each is worth its
share of the capability (core/sessions/turn_shares). Of other tools only those that clearly fit the
message are considered, because a turn without a budget would add no others. What cannot be counted
costs its bytes, an upper bound, so that no plan is over its budget.
"""

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import structlog
import trio

from capd.actors.session.memories import NoMemories, SessionMemories
from capd.actors.session.policy import rules_of
from capd.actors.session.services import SessionContext
from capd.core.memories.known_memories import PricedMemory, Tool, tokens_of
from capd.core.memories.selection import HEAD_TOKENS
from capd.core.memories.task_set import TaskItem, TaskSet, best_set
from capd.core.routing.user_limits import REASON as SET_BY_USER
from capd.core.sessions.hook_context import TURN_TOKENS
from capd.core.sessions.session import SessionState
from capd.core.sessions.surface import described, renamed
from capd.core.sessions.turn_shares import shares
from capd.core.tools.names import original_name
from capd.runtime.bus import ActorUnavailableError
from capd_protos import curator as messages
from capd_protos import finder
from capd_protos.types import CapabilityId, Decision, WireName

ASK_TIMEOUT = 3.0
COUNT_TIMEOUT = 10.0
"""Seconds to wait for the counting process, if something was never counted before."""
UNKNOWN = "its tools are not known yet: capd index"

log = structlog.get_logger(actor="curator")


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """What a turn may switch on and deliver within its token budget, and what was left out."""

    capabilities: tuple[CapabilityId, ...] = ()
    in_part: frozenset[CapabilityId] = frozenset()
    """Capabilities of which only some tools are switched on."""
    tools: tuple[finder.CuratedTool, ...] = ()
    memories: tuple[PricedMemory, ...] = ()
    left_out: tuple[messages.LeftOut, ...] = ()
    tokens: int = 0
    """What the plan costs, with what is reserved for the turn's own text."""


class _Part(NamedTuple):
    """The key of a part of a plan."""

    kind: Literal["capability", "tool", "memory"]
    name: str
    """`tap/name`, a wire name, or the key of a memory."""


class TaskBudget:
    """Plans turns of one session that have a token budget."""

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
    ) -> TurnPlan:
        """Return what to switch on and deliver for a message, within `budget` tokens.

        `decision` is the routing decision on the message, and `tools` are the tools that fit it
        best.
        """
        granted = await self._granted(_meant(decision, self._state))
        known = [each for each in granted if each.is_known]
        memories = self._due([each.id for each in known], known)
        counted = await self._counted(known, tools)
        used = await self._used()
        scores = {each.id: each.score for each in decision.top}
        # The turn's own text and the line above memories are not parts of the plan.
        reserved = TURN_TOKENS + (HEAD_TOKENS if memories else 0)
        room = max(0, budget - reserved)
        relevance = {each.hit.wire_name: each.hit.score for each in tools}
        brought = {each.id: {hit.wire_name for hit in each.tools} for each in known}
        wholes: dict[CapabilityId, TaskItem[_Part]] = {}
        shared: dict[CapabilityId, dict[WireName, TaskItem[_Part]]] = {}
        for each in known:
            worth = scores.get(each.id, 0.5) * _habit(each.tools, used)
            costs = {hit.wire_name: self._tokens(hit, counted) for hit in each.tools}
            wholes[each.id] = TaskItem(_whole(each.id), sum(costs.values()), worth)
            habits = {hit.wire_name: _habit([hit], used) for hit in each.tools}
            shared[each.id] = {
                name: TaskItem(_Part("tool", name), costs[name], share)
                for name, share in shares(worth, habits, relevance).items()
            }
        singles = {
            each.hit.wire_name: TaskItem(
                _Part("tool", each.hit.wire_name),
                self._tokens(each.hit, counted),
                max(each.hit.score, 0.01) * _habit([each.hit], used),
            )
            for each in tools
            if each.is_clear and not _bringing(each.hit.wire_name, brought)
        }
        for id_, whole in wholes.items():
            if whole.tokens > room:
                singles.update(shared[id_])
        worth_of = {each.key: each.worth for each in wholes.values()}
        parts = [*wholes.values(), *singles.values()]
        parts += [
            TaskItem(
                _Part("memory", each.key),
                each.priced.cost,
                (worth_of[needs] if needs else 1.0) * each.memory.priority * each.memory.confidence
                if each.memory.priority
                else 0.0,
                needs,
            )
            for each, needs in memories
        ]
        found = best_set(parts, room)
        chosen = {each.key for each in found.chosen}
        # A capability that does not fit beside a better one may still fit with some of its tools.
        rest = {
            name: part
            for id_, its in shared.items()
            if _whole(id_) not in chosen
            for name, part in its.items()
            if name not in singles
            and not any(_whole(by) in chosen for by in _bringing(name, brought))
        }
        found = _with_more(found, best_set(list(rest.values()), room - found.tokens))
        hits = {hit.wire_name: hit for each in known for hit in each.tools}
        hits.update((each.hit.wire_name, each.hit) for each in tools)
        unknown = [
            messages.LeftOut("capability", str(each.id), None, UNKNOWN)
            for each in granted
            if not each.is_known
        ]
        plan = _planned(found, known, hits, relevance, [each for each, _ in memories])
        planned = {each.hit.wire_name for each in plan.tools}
        plan = replace(
            plan,
            in_part=frozenset(id_ for id_, names in brought.items() if names & planned),
            left_out=(*unknown, *plan.left_out),
            tokens=plan.tokens + reserved,
        )
        log.info(
            "turn_planned",
            session=self._place.key,
            chosen=[f"{each.key.kind} {each.key.name}" for each in found.chosen],
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
    ) -> list[tuple[PricedMemory, _Part | None]]:
        """Return the memories that a plan may deliver, each with the capability that it depends on.

        The second value is None for a memory that is due in any case.
        """
        found: list[tuple[PricedMemory, _Part | None]] = []
        found += [(each, None) for each in self._memories.due()]
        known = {each.key for each, _ in found}
        by_id = {each.id: each for each in granted}
        for id_ in capabilities:
            tools = [_known_as(hit) for hit in by_id[id_].tools]
            for each in self._memories.of(id_, tools):
                if each.key not in known:
                    known.add(each.key)
                    found.append((each, _whole(id_)))
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
        """Return a tool's definition with the bytes that it would have on the client's list."""
        definition = renamed(hit.definition, hit.wire_name)
        note = self._memories.foreseen(_known_as(hit))
        return described(definition, note) if note else definition

    def _tokens(self, hit: finder.ToolHit, counted: dict[bytes, int]) -> int:
        return tokens_of(self._listed(hit).decode("utf-8", "replace"), counted)

    async def _used(self) -> dict[tuple[str, str], int]:
        return {(use.identity, use.tool): use.count for use in await self._uses.known()}


def _planned(
    found: TaskSet[_Part],
    granted: Sequence[finder.Granted],
    hits: Mapping[WireName, finder.ToolHit],
    relevance: Container[WireName],
    memories: Sequence[PricedMemory],
) -> TurnPlan:
    keys = {each.key for each in found.chosen}
    # Best first: that is the order in which they are named.
    best_first = sorted(found.chosen, key=lambda part: -part.worth)
    planned = [hits[WireName(part.key.name)] for part in best_first if part.key.kind == "tool"]
    return TurnPlan(
        capabilities=tuple(each.id for each in granted if _whole(each.id) in keys),
        tools=tuple(finder.CuratedTool(hit, is_clear=True) for hit in planned),
        memories=tuple(each for each in memories if _Part("memory", each.key) in keys),
        left_out=tuple(
            messages.LeftOut(part.key.kind, _shown_name(part.key), part.tokens, reason)
            for part, reason in found.left_out
            # A tool that is left out with its whole capability gets no line of its own.
            if part.key.kind != "tool" or WireName(part.key.name) in relevance
        ),
        tokens=found.tokens,
    )


def _meant(decision: Decision, state: SessionState) -> list[CapabilityId]:
    """Return the inactive capabilities that a message may mean, the best one first."""
    winner = [decision.id] if decision.id is not None and decision.outcome == "activate" else []
    # A capability that the user has kept from automatic activation is only suggested.
    suggested = () if decision.reason == SET_BY_USER else decision.suggested
    meant = dict.fromkeys([*winner, *suggested])
    return [each for each in meant if each not in state.active]


def _whole(id_: CapabilityId) -> _Part:
    return _Part("capability", str(id_))


def _shown_name(part: _Part) -> str:
    # A memory's key has a digest of its text behind the name.
    return part.name.rpartition("@")[0] if part.kind == "memory" else part.name


def _bringing(
    name: WireName, brought: Mapping[CapabilityId, Collection[WireName]]
) -> list[CapabilityId]:
    """Return the capabilities that would switch on the tool `name`.

    `brought` has the tools that each capability switches on.
    """
    return [id_ for id_, names in brought.items() if name in names]


def _with_more(found: TaskSet[_Part], more: TaskSet[_Part]) -> TaskSet[_Part]:
    return TaskSet((*found.chosen, *more.chosen), (*found.left_out, *more.left_out))


def _habit(hits: Sequence[finder.ToolHit], used: dict[tuple[str, str], int]) -> float:
    """Return the factor by which recent use of the tools `hits` increases their worth in a plan."""
    uses = sum(used.get((hit.identity, hit.name), 0) for hit in hits)
    return 1 + math.log2(1 + uses)


def _known_as(hit: finder.ToolHit) -> Tool:
    """Return a tool with the names that memories use: its server's own, before any edit."""
    is_new = hit.shown_name != hit.name
    known = original_name(hit.wire_name, hit.server, hit.identity, hit.name, is_new=is_new)
    return hit.server, hit.name, known
