"""A session's surface and leases follow its active set, in any order of events."""

import json
from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState, SingleTool, Step
from capd.core.sessions.surface import Surface
from capd.core.tools.tool_filter import kept_tools
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
OWN = (WireName("capability"), b'{"name":"capability"}')


def server(name: str, command: str, tools: tuple[str, ...] = ()) -> ServerSpec:
    return ServerSpec(ServerName(name), "stdio", TAP, command=command, tools=tools)


def capability(
    name: str, *servers: ServerSpec, allowed: tuple[str, ...] | None = None
) -> CapabilitySpec:
    id_ = CapabilityId(TAP, CapabilityName(name))
    return CapabilitySpec(id_, "default", servers=servers, allowed_tools=allowed)


def definitions(names: Iterable[str], version: int = 1) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(ToolName(name), json.dumps({"name": name, "version": version}).encode())
        for name in names
    )


GIT, DB, ODD = server("git", "git-mcp"), server("db", "db-mcp"), server("my.odd", "odd-mcp")
# The same server as GIT: under another name, and behind a filter of its own.
VCS, GIT_READ = server("vcs", "git-mcp"), server("git", "git-mcp", tools=("log", "a.b"))
# Another server under a name that is taken: what it offers needs other wire names.
FORK = server("git", "git-fork")
CAPABILITIES = (
    capability("all", GIT),
    capability("read", GIT_READ),
    capability("named", GIT, DB, allowed=("git:a*",)),
    capability("renamed", VCS, allowed=("vcs:l*",)),
    capability("both", DB, ODD),
    capability("fork", FORK),
    capability("odd", ODD, allowed=("a*", "log")),
    capability("deps"),
)
IDENTITIES = tuple(dict.fromkeys(server_identity(s) for c in CAPABILITIES for s in c.servers))
TOOLS = ("log", "a.b", "a_b", "add", "a" * 70, "a" * 71)

tool_lists = st.lists(st.sampled_from(TOOLS), max_size=5, unique=True)


class SessionMachine(RuleBasedStateMachine):
    """A session beside a model of its servers and leases."""

    state: SessionState

    @initialize(cap=st.integers(min_value=0, max_value=4), tools=tool_lists)
    def start(self, cap: int, tools: list[str]) -> None:
        self.state = SessionState(ActiveSet(cap), Surface([OWN]))
        self.now = 0.0
        self.listed = dict.fromkeys(IDENTITIES, definitions(tools))
        self.instances = {i: InstanceId(f"{i}-0") for i in IDENTITIES}
        self.on: dict[CapabilityId, CapabilitySpec] = {}
        self.holds: dict[ServerIdentity, set[InstanceId]] = {i: set() for i in IDENTITIES}
        self.shown: list[Grant] = []
        self.names: dict[Grant, WireName] = {}
        self.bytes = self.state.surface.listing()

    @rule(spec=st.sampled_from(CAPABILITIES))
    def activate(self, spec: CapabilitySpec) -> None:
        if spec.id in self.on:
            return
        self.now += 1
        held = [self.hold(server) for server in spec.servers]
        self.on[spec.id] = spec

        step = self.state.activate(spec, held, self.now)

        assert spec.id not in step.evicted
        self.follow(step)

    @rule(spec=st.sampled_from(CAPABILITIES))
    def deactivate(self, spec: CapabilitySpec) -> None:
        self.on.pop(spec.id, None)

        step = self.state.deactivate(spec.id)

        assert step.evicted == ()
        self.follow(step)

    @rule(server=st.sampled_from(IDENTITIES), tools=tool_lists, version=st.integers(1, 2))
    def server_lists_other_tools(
        self, server: ServerIdentity, tools: list[str], version: int
    ) -> None:
        self.listed[server] = definitions(tools, version)

        instance = next(iter(self.holds[server]), self.instances[server])

        step = self.state.update_server(server, instance, self.listed[server])

        self.follow(step)

    @rule(server=st.sampled_from(IDENTITIES), number=st.integers(1, 3))
    def server_comes_back_as_another_instance(self, server: ServerIdentity, number: int) -> None:
        self.instances[server] = InstanceId(f"{server}-{number}")
        if self.holds[server]:
            self.holds[server] = {self.instances[server]}

        step = self.state.update_server(server, self.instances[server], self.listed[server])

        self.follow(step)

    @rule(server=st.sampled_from(IDENTITIES), number=st.integers(4, 6))
    def the_next_hold_will_be_on_another_instance(
        self, server: ServerIdentity, number: int
    ) -> None:
        self.instances[server] = InstanceId(f"{server}-{number}")

    @rule(data=st.data())
    def tool_is_used(self, data: st.DataObject) -> None:
        if self.shown:
            self.now += 1
            self.state.active.used(data.draw(st.sampled_from(self.shown)), self.now)

    @invariant()
    def the_surface_shows_the_union_of_grants_in_the_order_of_first_activation(self) -> None:
        assert [shown.grant for shown in self.state.surface.shown] == self.shown
        assert set(self.state.active.grants) == set(self.shown)
        assert len(self.state.surface) == len(self.shown) + 1

    @invariant()
    def a_wire_name_is_valid_unique_and_stays_while_it_is_shown(self) -> None:
        names = {shown.grant: shown.name for shown in self.state.surface.shown}
        kept = {grant: name for grant, name in self.names.items() if grant in names}
        self.names = names

        assert kept == {grant: names[grant] for grant in kept}
        assert len({OWN[0], *names.values()}) == len(names) + 1
        assert all(len(name) <= 64 for name in names.values())
        assert all(
            found is not None and found.grant == grant
            for grant, name in names.items()
            for found in [self.state.surface.find(name)]
        )

    @invariant()
    def what_is_held_is_what_is_needed_and_nothing_else(self) -> None:
        needed = {server_identity(s) for spec in self.on.values() for s in spec.servers}
        current = {i: held for i in IDENTITIES if (held := self.state.lease_on(i))}

        assert set(current) == needed
        assert self.holds == {
            i: {current[i].instance} if i in current else set() for i in IDENTITIES
        }

    @invariant()
    def listing_again_gives_the_same_bytes(self) -> None:
        assert self.state.surface.listing() == self.state.surface.listing() == self.bytes

    def hold(self, spec: ServerSpec) -> ServerLease:
        identity = server_identity(spec)
        self.holds[identity].add(self.instances[identity])
        return ServerLease(spec, identity, self.instances[identity], self.listed[identity])

    def follow(self, step: Step) -> None:
        for evicted in step.evicted:
            del self.on[evicted]
        for released in step.unheld:
            self.holds[released.identity].remove(released.instance)
        expected = [
            Grant(server_identity(spec), name)
            for capability in self.on.values()
            for spec in capability.servers
            for name in kept_tools(
                spec.name,
                [tool.name for tool in self.listed[server_identity(spec)]],
                spec.tools,
                capability.allowed_tools,
            )
        ]
        removed = [grant for grant in self.shown if grant not in expected]
        kept = [grant for grant in self.shown if grant in expected]
        added = [grant for grant in dict.fromkeys(expected) if grant not in kept]
        old_names = self.names
        self.shown = kept + added
        names = {shown.grant: shown.name for shown in self.state.surface.shown}
        before, self.bytes = self.bytes, self.state.surface.listing()

        assert sorted(step.removed) == sorted(old_names[grant] for grant in removed)
        assert step.added == tuple(names[grant] for grant in added)
        assert step.changes_list == (self.bytes != before)
        assert json.loads(self.bytes)["tools"] == [
            {"name": "capability"},
            *(
                {"name": names[grant], "version": json.loads(self.tool(grant).json)["version"]}
                for grant in self.shown
            ),
        ]

    def tool(self, grant: Grant) -> ToolDefinition:
        return next(tool for tool in self.listed[grant.server] if tool.name == grant.tool)


def test_surface_and_holds_agree_with_the_active_set_after_any_order_of_steps() -> None:
    run_state_machine_as_test(
        SessionMachine,
        settings=settings(max_examples=examples(200), deadline=None, stateful_step_count=30),
    )


def held(spec: ServerSpec, *tools: str, instance: str = "1") -> ServerLease:
    return ServerLease(spec, server_identity(spec), InstanceId(instance), definitions(tools))


def session(cap: int = 4) -> SessionState:
    return SessionState(ActiveSet(cap), Surface([OWN]))


def test_a_capability_keeps_its_own_filter_when_another_one_shares_its_server() -> None:
    state = session()
    reader, everything = capability("read", GIT_READ), capability("all", GIT)
    state.activate(reader, [held(GIT_READ, "log", "push")], now=1.0)
    state.activate(everything, [held(GIT, "log", "push")], now=2.0)
    state.update_server(server_identity(GIT), InstanceId("1"), definitions(["log", "push", "tag"]))

    step = state.deactivate(everything.id)

    assert (step.removed, state.tools_of(reader.id)) == (("git__push", "git__tag"), ["git__log"])


def test_a_hold_on_an_instance_that_another_one_replaced_is_given_back() -> None:
    state = session()
    state.activate(capability("all", GIT), [held(GIT, "log", instance="1")], now=1.0)

    step = state.activate(
        capability("read", GIT_READ), [held(GIT_READ, "log", instance="2")], now=2.0
    )

    assert step == Step(unheld=(held(GIT, "log", instance="1"),))


def test_a_newer_list_that_an_activation_brings_counts_for_what_was_on_before() -> None:
    state = session()
    everything = capability("all", GIT)
    state.activate(everything, [held(GIT, "log")], now=1.0)

    step = state.activate(capability("read", GIT_READ), [held(GIT_READ, "log", "push")], now=2.0)

    assert step.added == ("git__push",)
    assert state.tools_of(everything.id) == ["git__log", "git__push"]


def test_an_eviction_releases_servers_that_nothing_needs_any_more() -> None:
    state = session(cap=1)
    state.activate(capability("all", GIT), [held(GIT, "log")], now=1.0)

    step = state.activate(capability("db", DB), [held(DB, "query")], now=2.0)

    assert step == Step(
        added=(WireName("db__query"),),
        removed=(WireName("git__log"),),
        evicted=(CapabilityId(TAP, CapabilityName("all")),),
        unheld=(held(GIT, "log"),),
        changes_list=True,
    )


def test_a_list_of_a_server_that_is_not_held_changes_nothing() -> None:
    state = session()

    step = state.update_server(server_identity(GIT), InstanceId("1"), definitions(["log"]))

    assert (step, step.changes_list) == (Step(), False)


def test_what_is_on_is_found_by_its_name_its_pinned_name_and_its_instance() -> None:
    state = session()
    spec = capability("all", GIT)
    state.activate(spec, [held(GIT, "log", "push")], now=1.0)

    found = [state.find_active(name) for name in ("all", "tap/all", "other/all", "al")]

    assert found == [spec.id, spec.id, None, None]
    assert state.lease_served_by(InstanceId("1")) == held(GIT, "log", "push")
    assert (state.lease_served_by(InstanceId("2")), state.tools_of(capability("x").id)) == (
        None,
        [],
    )
    assert state.available == 3


def test_a_single_tool_of_a_capability_that_policy_leaves_out_neither_comes_nor_stays() -> None:
    state = session()
    (log,) = definitions(["log"])
    single = SingleTool(GIT, server_identity(GIT), log, CapabilityId(TAP, CapabilityName("via")))
    left_out = Policy((PolicyRules("[bridges.box]", capabilities=("other",)),))
    state.restrict(left_out)

    refused = state.activate_tools([single], now=1.0)
    state.restrict(Policy())
    came = state.activate_tools([single], now=2.0)
    went = state.restrict(left_out)

    assert (refused, came.added, went.removed) == (Step(), ("git__log",), ("git__log",))


def test_a_capability_that_policy_leaves_out_grants_nothing() -> None:
    state = session()
    state.activate(capability("all", GIT), [held(GIT, "log")], now=1.0)

    step = state.restrict(Policy((PolicyRules("[bridges.box]", capabilities=("other",)),)))

    assert step.removed == ("git__log",)


def test_a_server_that_an_activation_needs_is_not_released_for_a_tool_that_it_has_lost() -> None:
    state = session()
    (old,) = definitions(["old"])
    single = SingleTool(GIT, server_identity(GIT), old, CapabilityId(TAP, CapabilityName("via")))
    state.activate_tools([single], now=1.0)

    step = state.activate(capability("all", GIT), [held(GIT, "log")], now=2.0)

    assert [each.instance for each in step.unheld] == [NO_INSTANCE]
    assert state.lease_on(server_identity(GIT)) == held(GIT, "log")
    assert (step.added, step.removed) == (("git__log",), ("git__old",))


def test_an_activation_tells_how_many_of_its_tools_policy_denies() -> None:
    state = session()
    state.policy = Policy((PolicyRules("[policy]", deny=("git:log", "vcs:a*")),))

    read = state.activate(CAPABILITIES[1], [held(GIT_READ, "log", "a.b", "add")], 1.0)
    renamed = state.activate(CAPABILITIES[3], [held(GIT, "log", "a.b", "add")], 2.0)

    # Each filter keeps `log`, which is denied under the name that one of them gives the server.
    assert (read.denied, renamed.denied) == (1, 1)
    assert [grant.tool for grant in state.active.grants] == ["a.b"]
