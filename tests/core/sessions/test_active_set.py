"""The active set: what stays active, what is evicted first, and what each step reports."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from capd.core.sessions.active_set import Activation, ActiveSet, ActiveSetChange, Grant
from capd_protos.types import CapabilityId, CapabilityName, ServerIdentity, TapName, ToolName
from support.examples import examples


def capability(name: str) -> CapabilityId:
    return CapabilityId(TapName("tap"), CapabilityName(name))


def grant(server: str, tool: str) -> Grant:
    return Grant(ServerIdentity(server), ToolName(tool))


S1, S2 = ServerIdentity("s1"), ServerIdentity("s2")
CAPABILITIES = tuple(capability(name) for name in "abcdef")
SERVERS = (S1, S2)
GRANTS = tuple(grant(server, tool) for server in SERVERS for tool in ("x", "y", "z"))

capabilities = st.sampled_from(CAPABILITIES)
grants_of = st.lists(st.sampled_from(GRANTS), max_size=4, unique=True)
pauses = st.sampled_from([0.0, 1.0, 10.0])


class ActiveSetMachine(RuleBasedStateMachine):
    """An active set beside a plain dict with the expected content."""

    active: ActiveSet

    @initialize(cap=st.integers(min_value=0, max_value=4), tool_cap=st.integers(0, 3))
    def start(self, cap: int, tool_cap: int) -> None:
        self.active = ActiveSet(cap, tool_cap)
        self.cap, self.tool_cap = cap, tool_cap
        self.now = 0.0
        self.on: dict[CapabilityId, Activation] = {}
        self.tools: dict[Grant, float] = {}
        self.pins: dict[ServerIdentity, tuple[Grant, ...]] = {}

    @rule(grants=st.lists(st.sampled_from(GRANTS), max_size=6), pause=pauses)
    def activate_tools(self, grants: list[Grant], pause: float) -> None:
        self.now += pause
        before = self.union()
        room = max(1, self.tool_cap)
        asked = list(dict.fromkeys(grants))[:room]
        for each in asked:
            self.tools.setdefault(each, self.now)
        over = len(self.tools) - room

        change = self.active.activate_tools(grants, self.now)

        assert len(change.evicted_tools) == max(0, over)
        assert not set(change.evicted_tools) & set(asked)
        gone = [self.tools.pop(each) for each in change.evicted_tools]
        left = [used for each, used in self.tools.items() if each not in asked]
        assert all(used <= other for used in gone for other in left)
        self.check_difference(before, change)

    @rule(server=st.sampled_from(SERVERS), tools=st.sets(st.sampled_from("xyz")))
    def pin(self, server: ServerIdentity, tools: set[str]) -> None:
        before = self.union()
        grants = tuple(Grant(server, ToolName(tool)) for tool in sorted(tools))
        self.pins[server] = tuple(dict.fromkeys((*self.pins.get(server, ()), *grants)))

        change = self.active.pin(server, grants)

        assert change.evicted_tools == ()
        self.check_difference(before, change)

    @rule(id_=capabilities, grants=grants_of, is_deps_only=st.booleans(), pause=pauses)
    def activate(
        self, id_: CapabilityId, grants: list[Grant], *, is_deps_only: bool, pause: float
    ) -> None:
        self.now += pause
        servers = () if is_deps_only else tuple(dict.fromkeys(g.server for g in grants)) or (S1,)
        granted = () if is_deps_only else tuple(grants)
        before = self.union()
        self.on[id_] = Activation(id_, servers, granted, self.now)

        change = self.active.activate(id_, servers, granted, self.now)

        assert id_ not in change.evicted
        self.follow_evictions(change, keep=id_)
        self.check_difference(before, change)

    @rule(id_=capabilities)
    def deactivate(self, id_: CapabilityId) -> None:
        before = self.union()
        self.on.pop(id_, None)

        change = self.active.deactivate(id_)

        assert change.evicted == ()
        self.check_difference(before, change)

    @rule(server=st.sampled_from(SERVERS), tools=st.sets(st.sampled_from("xyz")))
    def server_lists_other_tools(self, server: ServerIdentity, tools: set[str]) -> None:
        before = self.union()
        listed = tuple(Grant(server, ToolName(tool)) for tool in sorted(tools))
        concerned = [a for a in self.on.values() if server in a.servers]
        for old in concerned:
            others = tuple(g for g in old.grants if g.server != server)
            self.on[old.id] = Activation(old.id, old.servers, others + listed, old.last_used_at)
        self.tools = {
            each: used
            for each, used in self.tools.items()
            if each.server != server or each in listed
        }
        if server in self.pins:
            self.pins[server] = listed

        change = self.active.replace_grants(
            server, {old.id: listed for old in concerned}, listed, listed
        )

        self.follow_evictions(change, keep=None)
        self.check_difference(before, change)

    @rule(used=st.sampled_from(GRANTS), pause=pauses)
    def tool_is_used(self, used: Grant, pause: float) -> None:
        self.now += pause
        for old in list(self.on.values()):
            if used in old.grants:
                self.on[old.id] = Activation(old.id, old.servers, old.grants, self.now)
        if used in self.tools:
            self.tools[used] = self.now

        self.active.used(used, self.now)

    @rule(id_=capabilities, pause=pauses)
    def touch(self, id_: CapabilityId, pause: float) -> None:
        self.now += pause
        if old := self.on.get(id_):
            self.on[id_] = Activation(id_, old.servers, old.grants, self.now)

        self.active.touch(id_, self.now)

    @invariant()
    def exactly_what_should_be_on_is_on_in_the_order_of_first_activation(self) -> None:
        assert self.active.activations == tuple(self.on.values())
        assert all((id_ in self.active) == (id_ in self.on) for id_ in CAPABILITIES)
        assert list(self.active.tools.items()) == list(self.tools.items())
        assert self.active.pins == self.pins

    @invariant()
    def the_caps_hold(self) -> None:
        assert sum(a.takes_slot for a in self.active.activations) <= max(1, self.cap)
        assert len(self.active.tools) <= max(1, self.tool_cap)

    @invariant()
    def the_unions_are_those_of_all_activations(self) -> None:
        grants, servers = self.union()

        assert (set(self.active.grants), set(self.active.servers)) == (grants, servers)

    def union(self) -> tuple[set[Grant], set[ServerIdentity]]:
        pinned = {g for grants in self.pins.values() for g in grants}
        return (
            {g for a in self.on.values() for g in a.grants} | set(self.tools) | pinned,
            {s for a in self.on.values() for s in a.servers}
            | {each.server for each in self.tools}
            | set(self.pins),
        )

    def follow_evictions(self, change: ActiveSetChange, keep: CapabilityId | None) -> None:
        for evicted in change.evicted:
            victim = self.on[evicted]
            # What shows no tool makes no room for what does.
            slots = [a for a in self.on.values() if a.servers and a.takes_slot is victim.takes_slot]
            del self.on[evicted]
            assert len(slots) > max(1, self.cap), "evicted with room left"
            assert victim.servers
            assert victim.last_used_at == min(a.last_used_at for a in slots if a.id != keep)

    def check_difference(
        self, before: tuple[set[Grant], set[ServerIdentity]], change: ActiveSetChange
    ) -> None:
        grants, servers = self.union()
        got = (change.added, change.removed, change.unheld)

        assert all(len(part) == len(set(part)) for part in got)
        assert (set(change.added), set(change.removed), set(change.unheld)) == (
            grants - before[0],
            before[0] - grants,
            before[1] - servers,
        )


def test_no_order_of_steps_breaks_the_cap_or_misreports_a_change() -> None:
    run_state_machine_as_test(
        ActiveSetMachine,
        settings=settings(max_examples=examples(150), deadline=None, stateful_step_count=30),
    )


def test_the_least_recently_used_goes_first_and_every_granting_capability_counts_as_used() -> None:
    active = ActiveSet(cap=3)
    shared = grant("s1", "x")
    active.activate(capability("a"), [S1], [shared], now=1.0)
    active.activate(capability("b"), [S2], [grant("s2", "y")], now=2.0)
    active.activate(capability("c"), [S1], [shared, grant("s1", "z")], now=3.0)
    active.used(shared, now=4.0)

    change = active.activate(capability("d"), [S1], [grant("s1", "y")], now=5.0)

    assert change == ActiveSetChange(
        added=(grant("s1", "y"),),
        removed=(grant("s2", "y"),),
        evicted=(capability("b"),),
        unheld=(S2,),
    )


def test_a_tool_leaves_with_the_last_capability_that_grants_it() -> None:
    active = ActiveSet()
    active.activate(capability("a"), [S1], [grant("s1", "x"), grant("s1", "y")], now=1.0)
    active.activate(capability("b"), [S1], [grant("s1", "x")], now=2.0)

    change = active.deactivate(capability("a"))

    assert change == ActiveSetChange(removed=(grant("s1", "y"),))


def test_a_capability_of_dependencies_alone_takes_no_slot_and_is_never_evicted() -> None:
    active = ActiveSet(cap=1)
    active.activate(capability("deps"), [], [], now=1.0)
    active.activate(capability("a"), [S1], [grant("s1", "x")], now=2.0)

    change = active.activate(capability("b"), [S1], [grant("s1", "x")], now=3.0)

    assert (change, [a.id.name for a in active.activations]) == (
        ActiveSetChange(evicted=(capability("a"),)),
        ["deps", "b"],
    )


def test_a_cap_of_zero_still_leaves_room_for_what_was_just_asked_for() -> None:
    active = ActiveSet(cap=0)

    change = active.activate(capability("a"), [S1], [grant("s1", "x")], now=1.0)

    assert (change.evicted, capability("a") in active) == ((), True)


def test_a_clock_that_was_set_back_does_not_evict_what_was_just_activated() -> None:
    active = ActiveSet(cap=1)
    active.activate(capability("a"), [S1], [grant("s1", "x")], now=100.0)

    change = active.activate(capability("b"), [S2], [grant("s2", "x")], now=1.0)

    assert change.evicted == (capability("a"),)


def test_the_single_tool_that_was_used_longest_ago_goes_and_a_failed_search_is_no_use() -> None:
    active = ActiveSet(tool_cap=2)
    active.activate_tools([grant("s1", "x")], now=1.0)
    active.activate_tools([grant("s1", "y")], now=2.0)
    active.activate_tools([grant("s1", "x")], now=3.0)

    change = active.activate_tools([grant("s2", "z")], now=4.0)

    assert change == ActiveSetChange(
        added=(grant("s2", "z"),),
        removed=(grant("s1", "x"),),
        evicted_tools=(grant("s1", "x"),),
    )


def test_tools_that_are_asked_for_together_do_not_evict_one_another() -> None:
    active = ActiveSet(tool_cap=2)

    change = active.activate_tools([grant("s1", each) for each in "xyz"], now=1.0)

    assert change == ActiveSetChange(added=(grant("s1", "x"), grant("s1", "y")))


def test_a_tool_that_a_capability_grants_too_stays_when_it_is_evicted_as_a_single_one() -> None:
    active = ActiveSet(tool_cap=1)
    active.activate_tools([grant("s1", "x")], now=1.0)
    active.activate(capability("a"), [S1], [grant("s1", "x")], now=2.0)

    change = active.activate_tools([grant("s1", "y")], now=3.0)

    assert change == ActiveSetChange(added=(grant("s1", "y"),), evicted_tools=(grant("s1", "x"),))
