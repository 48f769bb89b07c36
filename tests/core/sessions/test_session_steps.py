"""Capabilities, single tools, pins and policy in any order, always within every cap."""

import json

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState, SingleTool, Step
from capd.core.sessions.surface import Surface
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)
from support.examples import examples

TAP = TapName("tap")
VIA = CapabilityId(TAP, CapabilityName("via"))
OWN = [(WireName(name), json.dumps({"name": name}).encode()) for name in ("one", "two")]
SERVERS = [
    ServerSpec(ServerName(name), "stdio", TAP, command=f"run-{name}") for name in ("a", "b", "c")
]
NAMES = ("r", "s", "t")
POLICIES = [
    Policy(),
    Policy((PolicyRules("[policy]", deny=("a:r", "t")),)),
    Policy((PolicyRules("[policy]", allow=("b:*",)),)),
]
CAPABILITIES = [
    CapabilitySpec(CapabilityId(TAP, CapabilityName(name)), "x", servers=servers)
    for name, servers in [
        ("ca", (SERVERS[0],)),
        ("cb", (SERVERS[1],)),
        ("cab", (SERVERS[0], SERVERS[1])),
        ("cc", (SERVERS[2],)),
        ("deps", ()),
    ]
]


def definition(name: str) -> ToolDefinition:
    return ToolDefinition(ToolName(name), json.dumps({"name": name}).encode())


tool_names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
servers = st.sampled_from(SERVERS)


class StepsMachine(RuleBasedStateMachine):
    """A session, and the holds at the supervisor that its steps leave."""

    state: SessionState

    @initialize(
        caps=st.tuples(st.integers(0, 2), st.integers(0, 3)),
        limit=st.integers(1, 9),
        is_fixed=st.booleans(),
        policy=st.sampled_from(POLICIES),
    )
    def start(self, caps: tuple[int, int], limit: int, *, is_fixed: bool, policy: Policy) -> None:
        surface = Surface(OWN, limit=limit, is_fixed=is_fixed)
        self.state = SessionState(ActiveSet(*caps), surface, policy)
        self.now = 0.0
        self.listed: dict[ServerIdentity, tuple[str, ...]] = {
            server_identity(spec): NAMES for spec in SERVERS
        }
        self.holds: set[tuple[ServerIdentity, InstanceId]] = set()
        self.bytes = surface.listing()
        self.names: dict[Grant, WireName] = {}

    @rule(spec=st.sampled_from(CAPABILITIES))
    def activate(self, spec: CapabilitySpec) -> None:
        self.now += 1
        held = [self.running(each) for each in spec.servers]

        self.follow(self.state.activate(spec, held, self.now))

        assert spec.id in self.state.active

    @rule(spec=st.sampled_from(CAPABILITIES))
    def deactivate(self, spec: CapabilitySpec) -> None:
        self.follow(self.state.deactivate(spec.id))

    @rule(wanted=st.lists(st.tuples(servers, st.sampled_from(NAMES)), max_size=5))
    def search(self, wanted: list[tuple[ServerSpec, str]]) -> None:
        self.now += 1
        tools = [
            SingleTool(spec, server_identity(spec), definition(name), VIA) for spec, name in wanted
        ]

        step = self.state.activate_tools(tools, self.now)

        if self.state.is_mid_turn:
            assert step.removed == ()
        self.follow(step)

    @rule(spec=servers, names=tool_names, runs=st.booleans())
    def pin(self, spec: ServerSpec, names: list[str], *, runs: bool) -> None:
        tools = tuple(definition(name) for name in names)
        held = (
            self.running(spec)
            if runs
            else ServerLease(spec, server_identity(spec), NO_INSTANCE, tools, VIA)
        )

        self.follow(self.state.pin(held, names))

    @rule(spec=servers)
    def first_call_starts_the_server(self, spec: ServerSpec) -> None:
        old = self.state.lease_on(server_identity(spec))
        if old is None:
            return
        running = self.running(spec)

        step = self.state.update_server(running.identity, running.instance, running.tools)

        if old.instance not in {NO_INSTANCE, running.instance}:
            self.holds.remove((old.identity, old.instance))
        self.follow(step)

    @rule(spec=servers, names=tool_names)
    def server_lists(self, spec: ServerSpec, names: list[str]) -> None:
        identity = server_identity(spec)
        self.listed[identity] = tuple(names)
        held = self.state.lease_on(identity)
        if held is None or held.instance == NO_INSTANCE:
            return
        tools = [definition(name) for name in names]

        self.follow(self.state.update_server(identity, held.instance, tools))

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        grants = list(self.state.active.grants)
        if grants:
            self.now += 1
            self.state.active.used(data.draw(st.sampled_from(grants)), self.now)

    @rule()
    def turn(self) -> None:
        self.state.is_mid_turn = False

        self.follow(self.state.begin_turn())

        assert self.state.begin_turn() == Step()
        self.state.is_mid_turn = True

    @rule(policy=st.sampled_from(POLICIES))
    def restrict(self, policy: Policy) -> None:
        self.follow(self.state.restrict(policy))

    @precondition(lambda self: self.state.surface.limit > 2)
    @rule()
    def nothing_is_said_to_change_where_nothing_does(self) -> None:
        assert self.state.activate_tools([], self.now) == Step()
        assert self.state.deactivate(VIA) == Step()

    @invariant()
    def what_is_held_is_what_something_needs_and_each_hold_is_kept_once(self) -> None:
        needed = set(self.state.active.servers)
        held = {each.identity: each.instance for each in self.state.servers}

        assert set(held) == needed
        assert self.holds == {pair for pair in held.items() if pair[1] != NO_INSTANCE}

    @invariant()
    def what_can_be_called_is_what_is_granted_and_permitted(self) -> None:
        shown = {each.grant for each in self.state.surface.shown}
        granted = set(self.state.active.grants)
        names = {server_identity(spec): spec.name for spec in SERVERS}

        assert shown == granted | {each for each in shown if self.state.is_leaving(each)}
        assert all(not self.state.is_leaving(each) for each in granted)
        assert all(self.state.policy.restriction(names[g.server], g.tool) is None for g in granted)

    @invariant()
    def the_caps_hold(self) -> None:
        active = self.state.active
        assert sum(each.takes_slot for each in active.activations) <= max(1, active.cap)
        assert len(active.tools) <= max(1, active.tool_cap)

    @invariant()
    def the_list_is_within_its_limit_with_pins_before_others(self) -> None:
        surface = self.state.surface
        listed = json.loads(surface.listing())["tools"]
        pinned = [each for each in surface.shown if each.grant in self.state.active.pinned]
        others = [each for each in surface.listed if each not in pinned]

        assert len(listed) == len(surface) <= surface.limit
        assert not (others and (surface.is_fixed or not set(pinned) <= set(surface.listed)))

    @invariant()
    def a_name_stays_its_tools_for_good(self) -> None:
        names = self.state.surface.names

        assert self.names.items() <= names.items()
        assert len({*names.values(), "one", "two"}) == len(names) + 2
        self.names = names

    def running(self, spec: ServerSpec) -> ServerLease:
        """Hold a server, as the supervisor would."""
        identity = server_identity(spec)
        instance = InstanceId(f"{spec.name}-1")
        self.holds.add((identity, instance))
        tools = tuple(definition(name) for name in self.listed[identity])
        return ServerLease(spec, identity, instance, tools)

    def follow(self, step: Step) -> None:
        for released in step.unheld:
            if released.instance != NO_INSTANCE:
                self.holds.remove((released.identity, released.instance))
        before, self.bytes = self.bytes, self.state.surface.listing()

        assert step.changes_list == (before != self.bytes)


def test_no_order_of_steps_leaves_a_hold_a_tool_or_a_list_that_nothing_asks_for() -> None:
    run_state_machine_as_test(
        StepsMachine,
        settings=settings(max_examples=examples(150), deadline=None, stateful_step_count=30),
    )
