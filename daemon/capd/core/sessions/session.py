"""The state of one session: its active set, its surface, and its leases.

The active set is what is switched on: capabilities, single tools, and pins (tools that are always
on). The surface is the tools that the client may call, of which its list may show only a part. A
wire name is the name under which clients know a tool. A lease keeps an instance, the running
connection to a server, alive for the session. A turn is one message of the user.

Pure state: a method takes facts and returns a `Step`, which says what changed and which leases to
release. Capabilities, single tools and pins grant tools. A tool is on the surface while anything
grants it, and a server is leased while anything that is on needs it.

There is one exception: a tool that is evicted during a turn stays on the surface until the next
turn begins, so that the client's list does not shrink within a prompt. For such a tool,
`granted_by` returns None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from capd.core.globs import matches
from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import Activation, ActiveSet, ActiveSetChange, Grant
from capd.core.sessions.policy import Policy
from capd.core.sessions.surface import ShownTool, Surface
from capd.core.tools.tool_filter import kept_tools
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    ToolDefinition,
    ToolName,
    WireName,
)

NO_INSTANCE = InstanceId("")


@dataclass(frozen=True, slots=True)
class ServerLease:
    """The session's lease on a server, with the instance that serves it and the tools it lists."""

    spec: ServerSpec
    identity: ServerIdentity
    instance: InstanceId
    """The instance; `NO_INSTANCE` if the server has not been used yet. This can be the case with
    single tools and pins, and in a restored session."""
    tools: tuple[ToolDefinition, ...]
    """The tools that the server lists; before it has started, tools that it is known to have."""
    via: CapabilityId | None = None
    """The capability whose dependencies must be installed before the server starts; None if the
    server has started, and so needs no installation."""


@dataclass(frozen=True, slots=True)
class SingleTool:
    """A tool to switch on by itself, with its definition from the catalog."""

    spec: ServerSpec
    identity: ServerIdentity
    definition: ToolDefinition
    via: CapabilityId
    """A capability with this tool. Its dependencies are installed before the server starts."""

    @property
    def grant(self) -> Grant:
        """The grant of this tool."""
        return Grant(self.identity, self.definition.name)


class _Offer(NamedTuple):
    """The tools of one server that a capability's filters keep and policy permits."""

    grants: list[Grant]
    denied: int
    """How many tools policy denies, of those that the capability's filters keep."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one operation on a session's state changes for the client and for leases."""

    added: tuple[WireName, ...] = ()
    """Tools that the client may call by these names from this step on."""
    removed: tuple[WireName, ...] = ()
    redefined: tuple[WireName, ...] = ()
    evicted: tuple[CapabilityId, ...] = ()
    evicted_tools: tuple[WireName, ...] = ()
    unheld: tuple[ServerLease, ...] = ()
    """Leases to release: on servers that nothing needs any longer, and on replaced instances."""
    changes_list: bool = False
    """Whether the step changes the list of tools that the client sees."""
    denied: int = 0
    """How many tools of the capability that the step switches on are denied by policy."""

    def then(self, later: "Step") -> "Step":
        """Return one step that makes the changes of this step and then those of `later`."""
        return Step(
            self.added + later.added,
            self.removed + later.removed,
            self.redefined + later.redefined,
            self.evicted + later.evicted,
            self.evicted_tools + later.evicted_tools,
            self.unheld + later.unheld,
            self.changes_list or later.changes_list,
            self.denied + later.denied,
        )


@dataclass(slots=True)
class SessionState:
    """What is on in one session, what its client lists, and which servers it leases."""

    active: ActiveSet
    surface: Surface
    policy: Policy = field(default_factory=Policy)
    is_mid_turn: bool = False
    """Whether evicted tools stay listed until the next turn: a model may be about to call one."""
    _leases: dict[ServerIdentity, ServerLease] = field(default_factory=dict)
    _specs: dict[CapabilityId, CapabilitySpec] = field(default_factory=dict)
    _pins: dict[ServerIdentity, tuple[str, ...]] = field(default_factory=dict)
    _leaving: dict[Grant, None] = field(default_factory=dict)
    _vias: dict[Grant, CapabilityId] = field(default_factory=dict)
    """The capability named when a single tool was switched on (`SingleTool.via`)."""
    _origins: dict[tuple[CapabilityId, ServerName], ServerIdentity] = field(default_factory=dict)
    """The identity of a capability's server when the capability was switched on last."""

    def activate(
        self, capability: CapabilitySpec, servers: Sequence[ServerLease], now: float
    ) -> Step:
        """Switch on a capability; return the changes.

        `servers` are the leases on its servers, which are all ready. `now` is the time at which the
        capability counts as used.
        """
        before = self.surface.listed
        replaced: list[ServerLease] = []
        relisted = Step()
        # A server's new list of tools may evict the capability that was used least recently. That
        # must not be this one.
        self.active.touch(capability.id, now)
        for server in servers:
            old = self._leases.get(server.identity)
            if old is not None and old.instance != server.instance:
                replaced.append(old)
            if old is not None and old.tools != server.tools:
                # Other capabilities' tools of this server follow its newest list too.
                step = self.update_server(server.identity, server.instance, server.tools)
                relisted = relisted.then(step)
            self._leases[server.identity] = server
        # A capability evicted just now may have been the last that needed one of these servers.
        self._leases.update((server.identity, server) for server in servers)
        self._specs[capability.id] = capability
        for server in servers:
            origin = (capability.id, server.spec.name)
            before_it = self._origins.get(origin, server.identity)
            if before_it != server.identity:
                self.surface.replace_server(before_it, server.identity)
            self._origins[origin] = server.identity
        offers = [self._offer(capability, server) for server in servers]
        grants = [grant for offer in offers for grant in offer.grants]
        identities = [server.identity for server in servers]
        change = self.active.activate(capability.id, identities, grants, now)
        step = self._follow(change, before, replaced=tuple(replaced), evicts=True)
        step = replace(step, denied=sum(offer.denied for offer in offers))
        return _without(relisted, identities).then(step)

    def activate_tools(
        self, tools: Sequence[SingleTool], now: float, spared: Sequence[Grant] = ()
    ) -> Step:
        """Switch single tools on, and lease their servers without starting them.

        Return the changes. A tool that policy denies, or that a leased server does not list, is
        left out. Tools in `spared` are evicted after all others.
        """
        before = self.surface.listed
        wanted: list[Grant] = []
        was_leased = set(self._leases)
        for tool in tools:
            if self.policy.restriction(tool.spec.name, tool.definition.name) is not None:
                continue
            if self.policy.restrict_capability(tool.via) is not None:
                continue
            lease = self._leases.get(tool.identity)
            if lease is None:
                none = ServerLease(tool.spec, tool.identity, NO_INSTANCE, (), tool.via)
                lease = self._leases[tool.identity] = none
            if tool.definition.name not in {each.name for each in lease.tools}:
                if lease.instance != NO_INSTANCE or lease.via is None:
                    continue
                more = (*lease.tools, tool.definition)
                self._leases[tool.identity] = replace(lease, tools=more)
            wanted.append(tool.grant)
            self._vias[tool.grant] = tool.via
        granted = self.active.grants
        new = [grant for grant in wanted if grant not in granted]
        step = self._follow(self.active.activate_tools(new, now, spared), before, evicts=True)
        # These leases were for tools that did not fit under the cap.
        for identity in [i for i in self._leases if i not in was_leased]:
            if identity not in self.active.servers:
                del self._leases[identity]
        return step

    def pin(self, server: ServerLease, patterns: Sequence[str]) -> Step:
        """Lease `server`, and pin its tools that match a pattern; return the changes.

        A pinned tool is always on. Nothing changes if policy denies the capability that the pinned
        tools are from.
        """
        if server.via is not None and self.policy.restrict_capability(server.via) is not None:
            return Step()
        before = self.surface.listed
        relisted = Step()
        old = self._leases.get(server.identity)
        if old is None or (old.instance == NO_INSTANCE and server.instance != NO_INSTANCE):
            relisted = self.update_server(server.identity, server.instance, server.tools)
            self._leases[server.identity] = server
        elif old.instance == NO_INSTANCE and old.via is not None:
            known = {tool.name for tool in old.tools}
            more = tuple(tool for tool in server.tools if tool.name not in known)
            self._leases[server.identity] = replace(old, tools=old.tools + more)
        pins = dict.fromkeys((*self._pins.get(server.identity, ()), *patterns))
        self._pins[server.identity] = tuple(pins)
        grants = self._pinned(self._leases[server.identity])
        self.surface.pin(grants)
        step = self._follow(self.active.pin(server.identity, grants), before)
        return _without(relisted, [server.identity]).then(step)

    @property
    def pinned(self) -> list[tuple[ServerLease, tuple[str, ...]]]:
        """The servers with pinned tools, each with the patterns of its pins.

        The leases are without the instances that serve them.
        """
        return [
            (replace(self._leases[identity], instance=NO_INSTANCE), patterns)
            for identity, patterns in self._pins.items()
            if identity in self._leases
        ]

    def deactivate(self, capability: CapabilityId) -> Step:
        """Switch a capability off; return the changes, none if it is not on."""
        before = self.surface.listed
        self._specs.pop(capability, None)
        return self._follow(self.active.deactivate(capability), before)

    def deactivate_tool(self, grant: Grant) -> Step:
        """Switch a single tool off; return the changes, none if it is not on by itself."""
        before = self.surface.listed
        return self._follow(self.active.deactivate_tool(grant), before)

    def forget_old_names(self) -> None:
        """Forget names of tools and prompts that are gone, if there are too many of them."""
        if self.surface.has_too_many_names:
            self.surface.forget_old_names({*self.active.grants, *self.active.tools})

    def find_tool(self, name: str) -> Grant | None:
        """Return the active tool called `name`; None if there is none.

        `name` is the tool's name for clients, or `server:tool`.
        """
        names, servers = self.surface.names, self._server_names()
        for grant in self.active.grants:
            if name in {names.get(grant), f"{servers.get(grant.server)}:{grant.tool}"}:
                return grant
        return None

    def update_server(
        self, server: ServerIdentity, instance: InstanceId, tools: Sequence[ToolDefinition]
    ) -> Step:
        """Apply a new list of tools, or a new instance, of a leased server; return the changes.

        The grants of capabilities and pins follow the new list, and so does the surface. A single
        tool that is no longer listed is switched off. Without a lease nothing changes.
        """
        old = self._leases.get(server)
        if old is None:
            return Step()
        before = self.surface.listed
        via = old.via if instance == NO_INSTANCE else None
        lease = self._leases[server] = ServerLease(old.spec, server, instance, tuple(tools), via)
        grants = {
            activation.id: tuple(self._granted(self._specs[activation.id], lease))
            for activation in self.active.activations
            if server in activation.servers
        }
        listed = [Grant(server, tool.name) for tool in tools]
        offered = {grant for grant in listed if self._permits(grant)}
        pinned = tuple(self._pinned(lease))
        self.surface.unpin(g for g in self.active.pins.get(server, ()) if g not in pinned)
        self.surface.pin(pinned)
        change = self.active.replace_grants(server, grants, offered, pinned)
        redefined = self.surface.redefine({Grant(server, tool.name): tool for tool in tools})
        return self._follow(change, before, tuple(redefined))

    def restrict(self, policy: Policy) -> Step:
        """Replace the policy, and return the changes.

        Tools that it denies go off. Tools of capabilities and pins that it permits come on again.
        """
        self.policy = policy
        step = Step()
        for lease in self.servers:
            step = step.then(self.update_server(lease.identity, lease.instance, lease.tools))
        return step

    def begin_turn(self) -> Step:
        """Begin a turn: remove the tools that were evicted during the last one.

        Return the changes.
        """
        if not self._leaving:
            return Step()
        before = self.surface.listed
        removed = self._drop_leaving()
        return Step(removed=removed, changes_list=before != self.surface.listed)

    def restore(
        self,
        activations: Iterable[Activation],
        specs: Mapping[CapabilityId, CapabilitySpec],
        servers: Iterable[ServerLease],
        names: Mapping[Grant, WireName],
        order: Sequence[Grant],
        *,
        tools: Mapping[Grant, float] | None = None,
    ) -> None:
        """Restore what was on when the session was saved. Pins that are set already stay.

        `specs` has the definitions of the capabilities, `names` the names under which clients knew
        the tools, `order` is their order on the surface, and `tools` are the single tools with the
        times of their last use. What is over the limits is left out, and so is what policy denies
        or what needs a server that is not in `servers`.
        """
        for lease in servers:
            pinned = self._leases.get(lease.identity)
            known = {tool.name for tool in lease.tools}
            more = tuple(t for t in pinned.tools if t.name not in known) if pinned else ()
            self._leases[lease.identity] = replace(lease, tools=lease.tools + more)
        definitions = self._definitions()
        self.active.restore(
            (
                self._permitted(each, specs[each.id])
                for each in activations
                if each.id in specs and all(server in self._leases for server in each.servers)
            ),
            {
                grant: used_at
                for grant, used_at in (tools or {}).items()
                if grant in definitions and self._permits(grant)
            },
        )
        self._specs = {key: spec for key, spec in specs.items() if key in self.active}
        needed = self.active.servers
        self._leases = {key: lease for key, lease in self._leases.items() if key in needed}
        self._origins = {
            (id_, spec.name): server_identity(spec)
            for id_, capability in self._specs.items()
            for spec in capability.servers
        }
        granted = self.active.grants
        kept = [grant for grant in (*order, *granted) if grant in granted and grant in definitions]
        self.surface.restore(names)
        self.surface.add(kept, self._server_names(), definitions)

    def lease_on(self, server: ServerIdentity) -> ServerLease | None:
        """Return the session's lease on a server; None if it has none."""
        return self._leases.get(server)

    def granted_by(self, grant: Grant) -> ServerLease | None:
        """Return the lease on the server of a tool on the surface.

        The result is None if nothing grants the tool any longer.
        """
        return None if grant in self._leaving else self._leases.get(grant.server)

    @property
    def servers(self) -> tuple[ServerLease, ...]:
        """The leases on all servers, in the order in which they were first needed."""
        return tuple(self._leases.values())

    def spec(self, capability: CapabilityId) -> CapabilitySpec:
        """Return the definition with which an active capability was switched on."""
        return self._specs[capability]

    def lease_served_by(self, instance: InstanceId) -> ServerLease | None:
        """Return the lease that `instance` serves; None if the session has no lease on it."""
        return next((h for h in self._leases.values() if h.instance == instance), None)

    def find_active(self, name: str) -> CapabilityId | None:
        """Return the active capability called `name`, or `tap/name`; else None."""
        ids = (activation.id for activation in self.active.activations)
        return next((id_ for id_ in ids if name in {str(id_.name), str(id_)}), None)

    def tools_of(self, capability: CapabilityId) -> list[WireName]:
        """Return the names under which clients know an active capability's tools, in list order."""
        for activation in self.active.activations:
            if activation.id == capability:
                granted = set(activation.grants)
                return [shown.name for shown in self.surface.shown if shown.grant in granted]
        return []

    def is_leaving(self, grant: Grant) -> bool:
        """Tell whether a tool was evicted during this turn, and is shown until the next one."""
        return grant in self._leaving

    @property
    def available(self) -> int:
        """The number of tools of all leased servers, plus that of capd's own tools."""
        own = len(self.surface.own)
        return own + sum(len(lease.tools) for lease in self._leases.values())

    def _follow(
        self,
        change: ActiveSetChange,
        before: tuple[ShownTool, ...],
        redefined: tuple[WireName, ...] = (),
        replaced: tuple[ServerLease, ...] = (),
        *,
        evicts: bool = False,
    ) -> Step:
        """Update the list of tools and the leases after a change of what is on; return the changes.

        `before` are the tools that were listed before the change. `redefined` are tools with a new
        definition, and `replaced` the leases on replaced instances, both for the `Step`. With
        `evicts`, removed tools stay shown until the next turn, if a turn is in progress.
        """
        if evicts and self.is_mid_turn:
            self._leaving.update(dict.fromkeys(change.removed))
            removed: tuple[WireName, ...] = ()
        else:
            removed = tuple(self.surface.remove(change.removed))
        names = self.surface.names
        evicted_tools = tuple(names[grant] for grant in change.evicted_tools)
        back = [grant for grant in change.added if grant in self._leaving]
        for grant in back:
            del self._leaving[grant]
        added = [*(names[grant] for grant in back)]
        added += self.surface.add(change.added, self._server_names(), self._definitions())
        if not self.is_mid_turn:
            removed += self._drop_leaving()
        self.forget_old_names()
        for evicted in change.evicted:
            self._specs.pop(evicted, None)
        unheld = tuple(self._leases.pop(server) for server in change.unheld)
        return Step(
            tuple(added),
            removed,
            redefined,
            change.evicted,
            evicted_tools,
            replaced + unheld,
            before != self.surface.listed,
        )

    def _drop_leaving(self) -> tuple[WireName, ...]:
        if not self._leaving:
            return ()
        removed = self.surface.remove(self._leaving)
        self._leaving.clear()
        return tuple(removed)

    def _granted(self, capability: CapabilitySpec, server: ServerLease) -> list[Grant]:
        return self._offer(capability, server).grants

    def _offer(self, capability: CapabilitySpec, server: ServerLease) -> _Offer:
        spec, kept = kept_by(capability, server)
        if self.policy.restrict_capability(capability.id) is not None:
            return _Offer([], len(kept))
        permitted = self.policy.permitted({spec.name, server.spec.name}, kept)
        grants = [Grant(server.identity, name) for name in permitted]
        return _Offer(grants, len(kept) - len(grants))

    def _pinned(self, server: ServerLease) -> list[Grant]:
        name = server.spec.name
        patterns = self._pins.get(server.identity, ())
        return [
            Grant(server.identity, tool.name)
            for pattern in patterns
            for tool in server.tools
            if matches(tool.name, pattern) and self.policy.restriction(name, tool.name) is None
        ]

    def _permits(self, grant: Grant) -> bool:
        via = self._vias.get(grant)
        if via is not None and self.policy.restrict_capability(via) is not None:
            return False
        return self.policy.restriction(self._leases[grant.server].spec.name, grant.tool) is None

    def _permitted(self, activation: Activation, spec: CapabilitySpec) -> Activation:
        """Return a saved activation with only the grants that policy permits."""
        kept = {g for s in activation.servers for g in self._granted(spec, self._leases[s])}
        grants = tuple(grant for grant in activation.grants if grant in kept)
        return replace(activation, grants=grants)

    def _definitions(self) -> dict[Grant, ToolDefinition]:
        return {
            Grant(lease.identity, tool.name): tool
            for lease in self._leases.values()
            for tool in lease.tools
        }

    def _server_names(self) -> dict[ServerIdentity, ServerName]:
        return {lease.identity: lease.spec.name for lease in self._leases.values()}


def kept_by(capability: CapabilitySpec, server: ServerLease) -> tuple[ServerSpec, list[ToolName]]:
    """Return a capability's definition of a leased server, and the tools that its filters keep."""
    names = [tool.name for tool in server.tools]
    # Another capability's definition of the same server may have another name or filter.
    own = (spec for spec in capability.servers if server_identity(spec) == server.identity)
    spec = next(own, server.spec)
    return spec, kept_tools(spec.name, names, spec.tools, capability.allowed_tools)


def _without(step: Step, kept: Sequence[ServerIdentity]) -> Step:
    """Return the changes of `step`, without releasing leases on the servers in `kept`."""
    return replace(step, unheld=tuple(lease for lease in step.unheld if lease.identity not in kept))


def capabilities_of_project(state: SessionState, project: str) -> list[CapabilityId]:
    """Return the active capabilities that use a server of `project`, a path without symlinks."""
    theirs = {lease.identity for lease in state.servers if lease.spec.project == project}
    return [each.id for each in state.active.activations if theirs.intersection(each.servers)]


def without_project(state: SessionState, project: str) -> Step:
    """Switch off every capability, single tool and pin that needs a server of `project`.

    Return the changes. `project` is a path without symlinks.
    """
    step = Step()
    for capability in capabilities_of_project(state, project):
        step = step.then(state.deactivate(capability))
    for lease in state.servers:
        if lease.spec.project == project:
            # Single tools and pins are removed once their server lists no tool.
            step = step.then(state.update_server(lease.identity, lease.instance, ()))
    return step
