"""The state of one session: its active set, its surface, and its leases.

Pure state: a step takes facts and returns what changed and which instances to release. Grants,
leases and surface always agree: a tool is shown exactly while a capability grants it, a server is
leased exactly while a capability needs it.

Single tools and pins grant tools and need servers just as capabilities do. A tool that is evicted
during a turn stays on the list until the next turn, and is granted again if it is called.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from capd.core.globs import matches
from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import Activation, ActiveSet, Change, Grant
from capd.core.sessions.policy import Policy
from capd.core.sessions.surface import Shown, Surface
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
    """A server that the session holds, by the instance that serves it now."""

    spec: ServerSpec
    identity: ServerIdentity
    instance: InstanceId
    """`NO_INSTANCE` until the server's first use: for single tools, and in a restored session."""
    tools: tuple[ToolDefinition, ...]
    """The tools that it lists, or those that were needed so far."""
    via: CapabilityId | None = None
    """The capability whose dependencies its start needs, if nothing has installed them yet."""


@dataclass(frozen=True, slots=True)
class SingleTool:
    """A tool that is switched on by itself, from its saved definition."""

    spec: ServerSpec
    identity: ServerIdentity
    definition: ToolDefinition
    via: CapabilityId
    """A capability that grants it: its dependencies are installed before the server starts."""

    @property
    def grant(self) -> Grant:
        """Return the grant of this tool."""
        return Grant(self.identity, self.definition.name)


@dataclass(frozen=True, slots=True)
class Step:
    """The changes of one step."""

    added: tuple[WireName, ...] = ()
    """Tools that can be called by name from now on."""
    removed: tuple[WireName, ...] = ()
    redefined: tuple[WireName, ...] = ()
    evicted: tuple[CapabilityId, ...] = ()
    evicted_tools: tuple[WireName, ...] = ()
    unheld: tuple[ServerLease, ...] = ()
    """Leases to release: of servers that nothing needs any longer, and of replaced instances."""
    changes_list: bool = False
    """Whether the client's list of tools changes."""

    def then(self, later: "Step") -> "Step":
        """Return the changes of this step and a later one together."""
        return Step(
            self.added + later.added,
            self.removed + later.removed,
            self.redefined + later.redefined,
            self.evicted + later.evicted,
            self.evicted_tools + later.evicted_tools,
            self.unheld + later.unheld,
            self.changes_list or later.changes_list,
        )


@dataclass(slots=True)
class SessionState:
    """The state of one session."""

    active: ActiveSet
    surface: Surface
    policy: Policy = field(default_factory=Policy)
    is_mid_turn: bool = False
    """Whether evicted tools stay listed until the next turn, so that no prompt breaks."""
    _held: dict[ServerIdentity, ServerLease] = field(default_factory=dict)
    _specs: dict[CapabilityId, CapabilitySpec] = field(default_factory=dict)
    _pins: dict[ServerIdentity, tuple[str, ...]] = field(default_factory=dict)
    _leaving: dict[Grant, None] = field(default_factory=dict)
    _vias: dict[Grant, CapabilityId] = field(default_factory=dict)
    """The capability by which a single tool came on."""
    _origins: dict[tuple[CapabilityId, ServerName], ServerIdentity] = field(default_factory=dict)
    """The definition of a capability's server when it was switched on last."""

    def activate(
        self, capability: CapabilitySpec, servers: Sequence[ServerLease], now: float
    ) -> Step:
        """Switch on a capability whose servers are all connected."""
        before = self.surface.listed
        replaced: list[ServerLease] = []
        relisted = Step()
        for server in servers:
            old = self._held.get(server.identity)
            if old is not None and old.instance != server.instance:
                replaced.append(old)
            if old is not None and old.tools != server.tools:
                # Other capabilities' tools of this server follow its newest list too.
                step = self.server_lists(server.identity, server.instance, server.tools)
                relisted = relisted.then(step)
            self._held[server.identity] = server
        self._specs[capability.id] = capability
        for server in servers:
            origin = (capability.id, server.spec.name)
            before_it = self._origins.get(origin, server.identity)
            if before_it != server.identity:
                self.surface.replace_server(before_it, server.identity)
            self._origins[origin] = server.identity
        grants = [grant for server in servers for grant in self._granted(capability, server)]
        identities = [server.identity for server in servers]
        change = self.active.activate(capability.id, identities, grants, now)
        step = self._follow(change, before, replaced=tuple(replaced), evicts=True)
        return _without(relisted, identities).then(step)

    def activate_tools(
        self, tools: Sequence[SingleTool], now: float, spared: Sequence[Grant] = ()
    ) -> Step:
        """Switch single tools on; lease their servers without starting them.

        A tool that a held server no longer lists, or that policy denies, is left out. `spared` ones
        are evicted last.
        """
        before = self.surface.listed
        wanted: list[Grant] = []
        was_held = set(self._held)
        for tool in tools:
            if self.policy.restriction(tool.spec.name, tool.definition.name) is not None:
                continue
            if self.policy.restrict_capability(tool.via) is not None:
                continue
            held = self._held.get(tool.identity)
            if held is None:
                none = ServerLease(tool.spec, tool.identity, NO_INSTANCE, (), tool.via)
                held = self._held[tool.identity] = none
            if tool.definition.name not in {each.name for each in held.tools}:
                if held.instance != NO_INSTANCE or held.via is None:
                    continue
                more = (*held.tools, tool.definition)
                self._held[tool.identity] = replace(held, tools=more)
            wanted.append(tool.grant)
            self._vias[tool.grant] = tool.via
        granted = self.active.grants
        new = [grant for grant in wanted if grant not in granted]
        step = self._follow(self.active.activate_tools(new, now, spared), before, evicts=True)
        # These leases were for tools that did not fit under the cap.
        for identity in [i for i in self._held if i not in was_held]:
            if identity not in self.active.servers:
                del self._held[identity]
        return step

    def pin(self, server: ServerLease, patterns: Sequence[str]) -> Step:
        """Lease `server` and always show those of its tools that match."""
        if server.via is not None and self.policy.restrict_capability(server.via) is not None:
            return Step()
        before = self.surface.listed
        relisted = Step()
        old = self._held.get(server.identity)
        if old is None or (old.instance == NO_INSTANCE and server.instance != NO_INSTANCE):
            relisted = self.server_lists(server.identity, server.instance, server.tools)
            self._held[server.identity] = server
        elif old.instance == NO_INSTANCE and old.via is not None:
            known = {tool.name for tool in old.tools}
            more = tuple(tool for tool in server.tools if tool.name not in known)
            self._held[server.identity] = replace(old, tools=old.tools + more)
        pins = dict.fromkeys((*self._pins.get(server.identity, ()), *patterns))
        self._pins[server.identity] = tuple(pins)
        grants = self._pinned(self._held[server.identity])
        self.surface.pin(grants)
        step = self._follow(self.active.pin(server.identity, grants), before)
        return _without(relisted, [server.identity]).then(step)

    def deactivate(self, capability: CapabilityId) -> Step:
        """Switch a capability off. If it is not on, nothing changes."""
        before = self.surface.listed
        self._specs.pop(capability, None)
        return self._follow(self.active.deactivate(capability), before)

    def deactivate_tool(self, grant: Grant) -> Step:
        """Switch a single tool off. If it is not on by itself, nothing changes."""
        before = self.surface.listed
        return self._follow(self.active.deactivate_tool(grant), before)

    def find_tool(self, name: str) -> Grant | None:
        """Return the active tool with this wire name, or that is `server:tool`."""
        names, servers = self.surface.names, self._server_names()
        for grant in self.active.grants:
            if name in {names.get(grant), f"{servers.get(grant.server)}:{grant.tool}"}:
                return grant
        return None

    def why_on(self, grant: Grant) -> list[CapabilityId]:
        """Return the capabilities through which a tool is on."""
        return [each.id for each in self.active.activations if grant in each.grants]

    def server_lists(
        self, server: ServerIdentity, instance: InstanceId, tools: Sequence[ToolDefinition]
    ) -> Step:
        """Filter again after a leased server changed its tools or has a new instance."""
        old = self._held.get(server)
        if old is None:
            return Step()
        before = self.surface.listed
        via = old.via if instance == NO_INSTANCE else None
        held = self._held[server] = ServerLease(old.spec, server, instance, tuple(tools), via)
        grants = {
            activation.id: tuple(self._granted(self._specs[activation.id], held))
            for activation in self.active.activations
            if server in activation.servers
        }
        listed = [Grant(server, tool.name) for tool in tools]
        offered = {grant for grant in listed if self._permits(grant)}
        pinned = tuple(self._pinned(held))
        self.surface.unpin(g for g in self.active.pins.get(server, ()) if g not in pinned)
        self.surface.pin(pinned)
        change = self.active.replace_grants(server, grants, offered, pinned)
        redefined = self.surface.redefine({Grant(server, tool.name): tool for tool in tools})
        return self._follow(change, before, tuple(redefined))

    def restrict(self, policy: Policy) -> Step:
        """Apply another policy, also to what is on."""
        self.policy = policy
        step = Step()
        for held in self.servers:
            step = step.then(self.server_lists(held.identity, held.instance, held.tools))
        return step

    def turn_border(self) -> Step:
        """Remove from the list what was evicted during the last turn."""
        before = self.surface.listed
        removed = self._settle_leaving()
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
        """Restore what a saved session had on; what is pinned now stays.

        What exceeds the caps, and what policy now denies, is left out.
        """
        for held in servers:
            pinned = self._held.get(held.identity)
            known = {tool.name for tool in held.tools}
            more = tuple(t for t in pinned.tools if t.name not in known) if pinned else ()
            self._held[held.identity] = replace(held, tools=held.tools + more)
        definitions = self._definitions()
        self.active.restore(
            (
                self._permitted(each, specs[each.id])
                for each in activations
                if each.id in specs and all(server in self._held for server in each.servers)
            ),
            {
                grant: used_at
                for grant, used_at in (tools or {}).items()
                if grant in definitions and self._permits(grant)
            },
        )
        self._specs = {key: spec for key, spec in specs.items() if key in self.active}
        needed = self.active.servers
        self._held = {key: held for key, held in self._held.items() if key in needed}
        self._origins = {
            (id_, spec.name): server_identity(spec)
            for id_, capability in self._specs.items()
            for spec in capability.servers
        }
        granted = self.active.grants
        kept = [grant for grant in (*order, *granted) if grant in granted and grant in definitions]
        self.surface.restore(names)
        self.surface.add(kept, self._server_names(), definitions)

    def held(self, server: ServerIdentity) -> ServerLease | None:
        """Return the lease on a server."""
        return self._held.get(server)

    def granted_by(self, grant: Grant) -> ServerLease | None:
        """Return the lease of a tool's server; None if nothing grants the tool any longer."""
        return None if grant in self._leaving else self._held.get(grant.server)

    @property
    def servers(self) -> tuple[ServerLease, ...]:
        """Every server that the session holds, in the order of their first need."""
        return tuple(self._held.values())

    def spec(self, capability: CapabilityId) -> CapabilitySpec:
        """Return the definition of an active capability."""
        return self._specs[capability]

    def held_as(self, instance: InstanceId) -> ServerLease | None:
        """Return the server that an instance is leased for."""
        return next((h for h in self._held.values() if h.instance == instance), None)

    def find_active(self, name: str) -> CapabilityId | None:
        """Return the active capability that `name` or `tap/name` means."""
        ids = (activation.id for activation in self.active.activations)
        return next((id_ for id_ in ids if name in {str(id_.name), str(id_)}), None)

    def tools_of(self, capability: CapabilityId) -> list[WireName]:
        """Return the tools of an active capability, in the surface's order."""
        for activation in self.active.activations:
            if activation.id == capability:
                granted = set(activation.grants)
                return [shown.name for shown in self.surface.shown if shown.grant in granted]
        return []

    def denied(self, capability: CapabilitySpec, server: ServerLease) -> int:
        """Return how many tools of a capability the policy denies on `server`."""
        return len(kept_by(capability, server)[1]) - len(self._granted(capability, server))

    def is_leaving(self, grant: Grant) -> bool:
        """Tell whether a tool is still listed although nothing grants it any longer."""
        return grant in self._leaving

    @property
    def available(self) -> int:
        """The number of tools of all leased servers, capd's own included."""
        own = len(self.surface.own)
        return own + sum(len(held.tools) for held in self._held.values())

    def _follow(
        self,
        change: Change,
        before: tuple[Shown, ...],
        redefined: tuple[WireName, ...] = (),
        replaced: tuple[ServerLease, ...] = (),
        *,
        evicts: bool = False,
    ) -> Step:
        """Update surface and leases to match the active set."""
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
            removed += self._settle_leaving()
        for evicted in change.evicted:
            self._specs.pop(evicted, None)
        unheld = tuple(self._held.pop(server) for server in change.unheld)
        return Step(
            tuple(added),
            removed,
            redefined,
            change.evicted,
            evicted_tools,
            replaced + unheld,
            before != self.surface.listed,
        )

    def _settle_leaving(self) -> tuple[WireName, ...]:
        removed = self.surface.remove(self._leaving)
        self._leaving.clear()
        return tuple(removed)

    def _granted(self, capability: CapabilitySpec, server: ServerLease) -> list[Grant]:
        if self.policy.restrict_capability(capability.id) is not None:
            return []
        spec, kept = kept_by(capability, server)
        return [
            Grant(server.identity, name)
            for name in kept
            if all(
                self.policy.restriction(each, name) is None
                for each in {spec.name, server.spec.name}
            )
        ]

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
        return self.policy.restriction(self._held[grant.server].spec.name, grant.tool) is None

    def _permitted(self, activation: Activation, spec: CapabilitySpec) -> Activation:
        """Return the part of a saved activation that policy permits."""
        kept = {g for s in activation.servers for g in self._granted(spec, self._held[s])}
        grants = tuple(grant for grant in activation.grants if grant in kept)
        return replace(activation, grants=grants)

    def _definitions(self) -> dict[Grant, ToolDefinition]:
        return {
            Grant(held.identity, tool.name): tool
            for held in self._held.values()
            for tool in held.tools
        }

    def _server_names(self) -> dict[ServerIdentity, ServerName]:
        return {held.identity: held.spec.name for held in self._held.values()}


def kept_by(capability: CapabilitySpec, server: ServerLease) -> tuple[ServerSpec, list[ToolName]]:
    """Return a capability's definition of a server, and the tools that its filters keep."""
    names = [tool.name for tool in server.tools]
    # Another capability's definition of the same server may have another name or filter.
    own = (spec for spec in capability.servers if server_identity(spec) == server.identity)
    spec = next(own, server.spec)
    return spec, kept_tools(spec.name, names, spec.tools, capability.allowed_tools)


def _without(step: Step, kept: Sequence[ServerIdentity]) -> Step:
    """Return `step` without the release of servers that the next step needs."""
    return replace(step, unheld=tuple(held for held in step.unheld if held.identity not in kept))
