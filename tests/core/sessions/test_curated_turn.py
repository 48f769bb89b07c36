"""Which single tools a turn activates, after any turns, searches, uses and pins."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.curated_turn import Ranked, TurnTools, activate_ranked
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState, SingleTool, Step
from capd.core.sessions.surface import Surface
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)
from support.examples import examples

VIA = CapabilityId(TapName("t"), CapabilityName("c"))
SPECS = [ServerSpec(ServerName(name), "stdio", TapName("t"), command=name) for name in "abc"]
TOOLS = [
    SingleTool(
        spec,
        server_identity(spec),
        ToolDefinition(ToolName(f"t{number}"), json.dumps({"name": f"t{number}"}).encode()),
        VIA,
    )
    for spec in SPECS
    for number in range(8)
]
BY_GRANT = {tool.grant: tool for tool in TOOLS}
GRANTS = list(BY_GRANT)
A, B, C, D = GRANTS[:4]


def clear(*grants: Grant) -> list[Ranked]:
    return [Ranked(BY_GRANT[grant], is_clear=True) for grant in grants]


def session(*on: Grant, limit: int = 9, tool_cap: int = 9) -> SessionState:
    """Return a session that has these on, the first one used longest ago."""
    state = SessionState(ActiveSet(4, tool_cap), Surface((), limit=limit))
    for at, grant in enumerate(on):
        state.activate_tools([BY_GRANT[grant]], float(at))
    return state


def listed(state: SessionState) -> list[Grant]:
    return [shown.grant for shown in state.surface.listed]


def test_the_first_clear_ones_that_are_not_on_join_at_the_end() -> None:
    state = session(B)

    activate_ranked(
        state, [Ranked(BY_GRANT[A], is_clear=False), *clear(D, B, C)], 2, 9.0, is_seen=True
    )

    assert listed(state) == [B, D]


def test_the_next_ones_do_not_take_the_place_of_those_that_are_on() -> None:
    got = activate_ranked(session(A, B), clear(A, B, C), 2, 9.0, is_seen=True)

    assert got == TurnTools()


def test_pins_take_no_place_of_what_may_join() -> None:
    state = session()
    ranked = [Ranked(BY_GRANT[A], is_clear=True, is_pinned=True), *clear(B)]

    activate_ranked(state, ranked, 1, 9.0, is_seen=True)

    assert listed(state) == [B]


def test_what_has_no_room_on_the_list_is_suggested_unless_it_was_told() -> None:
    got = activate_ranked(
        session(limit=1), clear(A, B, C), 3, 9.0, is_seen=True, suggested_before={C}
    )

    assert (len(got.step.added), got.suggested) == (1, (B,))


def test_where_the_list_is_not_seen_nothing_joins() -> None:
    got = activate_ranked(session(), clear(A, B), 3, 9.0, is_seen=False)

    assert got == TurnTools(suggested=(A, B))


def test_what_is_among_the_best_is_evicted_last() -> None:
    state = session(A, B, tool_cap=2)

    activate_ranked(state, [Ranked(BY_GRANT[A], is_clear=False), *clear(C)], 3, 9.0, is_seen=True)

    assert listed(state) == [A, C]


class CuratedSession(RuleBasedStateMachine):
    """One session whose client accepts few tools."""

    @initialize(
        limit=st.integers(1, 12),
        tool_cap=st.integers(1, 8),
        most=st.integers(1, 4),
        own=st.integers(0, 4),
    )
    def begin(self, limit: int, tool_cap: int, most: int, own: int) -> None:
        names = [(WireName(f"own{number}"), b"{}") for number in range(own)]
        self.surface = Surface(names, limit=limit)
        self.state = SessionState(ActiveSet(4, tool_cap), self.surface)
        self.most = most
        self.now = 1.0
        self.pins: list[Grant] = []

    def listed(self) -> list[Grant]:
        return [shown.grant for shown in self.surface.listed]

    def turn(self, ranked: list[Ranked]) -> Step:
        self.now += 1
        self.state.is_mid_turn = False
        self.state.begin_turn()
        got = activate_ranked(self.state, ranked, self.most, self.now, is_seen=True)
        self.state.is_mid_turn = True
        return got.step

    @rule(
        order=st.permutations(GRANTS).map(lambda all_: all_[:10]),
        marks=st.lists(st.booleans(), min_size=10, max_size=10),
    )
    def take_a_turn(self, order: list[Grant], marks: list[bool]) -> None:
        self.state.begin_turn()
        before = self.listed()
        ranked = [
            Ranked(BY_GRANT[grant], is_clear=mark, is_pinned=grant in self.pins)
            for grant, mark in zip(order, marks, strict=True)
        ]

        step = self.turn(ranked)

        after = self.listed()
        stayed = [grant for grant in before if grant in after]
        assert len(step.added) <= self.most
        assert after[: len(stayed)] == stayed
        assert len(after) == len(stayed) + len(step.added)
        assert self.turn(ranked) == Step()
        assert self.listed() == after

    @rule(tool=st.sampled_from(TOOLS))
    def find(self, tool: SingleTool) -> None:
        self.now += 1
        self.state.activate_tools([tool], self.now)

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        self.now += 1
        on = list(self.state.active.grants)
        if on:
            self.state.active.used(data.draw(st.sampled_from(on)), self.now)

    @precondition(lambda self: len(self.pins) < 14)
    @rule(tool=st.sampled_from(TOOLS))
    def pin(self, tool: SingleTool) -> None:
        server = ServerLease(tool.spec, tool.identity, NO_INSTANCE, (tool.definition,), VIA)
        self.state.pin(server, [tool.definition.name])
        if tool.grant not in self.pins:
            self.pins.append(tool.grant)

    @invariant()
    def the_list_is_never_over_the_clients_limit(self) -> None:
        assert len(self.surface.definitions()) == len(self.surface) <= self.surface.limit

    @invariant()
    def single_tools_are_never_over_their_cap(self) -> None:
        assert len(self.state.active.tools) <= self.state.active.tool_cap

    @invariant()
    def the_first_pins_are_listed(self) -> None:
        room = max(0, self.surface.limit - len(self.surface.own))
        listed = self.listed()
        assert all(grant in listed for grant in self.pins[:room])


CuratedSession.TestCase.settings = settings(
    max_examples=examples(60), stateful_step_count=20, deadline=None
)
TestCuratedSession = CuratedSession.TestCase
