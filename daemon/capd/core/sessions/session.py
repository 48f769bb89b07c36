"""What one session has: its active set, its surface, and the servers that they rest on.

Pure state: a step takes what was found out and returns what changed and which instances are to
be released. Grants, holds and surface always agree: a tool is shown exactly while a capability
grants it, a server is held exactly while a capability needs it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import Activation, ActiveSet, Change, Grant
from capd.core.sessions.surface import Surface
from capd.core.tools.tool_filter import kept_tools
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    InstanceId,
    ServerIdentity,
    ServerName,
    ServerSpec,
    ToolDefinition,
    WireName,
)

NO_INSTANCE = InstanceId("")


@dataclass(frozen=True, slots=True)
class Held:
    """A server that the session holds, by the instance that serves it now."""

    spec: ServerSpec
    identity: ServerIdentity
    instance: InstanceId
    """`NO_INSTANCE` in a session that was found again, until the server's first use."""
    tools: tuple[ToolDefinition, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """What one step changed."""

    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    redefined: tuple[WireName, ...] = ()
    evicted: tuple[CapabilityId, ...] = ()
    unheld: tuple[Held, ...] = ()
    """Servers that nothing needs any more, and instances that another one has replaced: their
    holds are to be released."""

    def then(self, later: "Step") -> "Step":
        """Return what this step and a later one changed together."""
        return Step(
            self.added + later.added,
            self.removed + later.removed,
            self.redefined + later.redefined,
            self.evicted + later.evicted,
            self.unheld + later.unheld,
        )

    @property
    def changes_list(self) -> bool:
        """Whether the client's list of tools is another one."""
        return bool(self.added or self.removed or self.redefined)


@dataclass(slots=True)
class SessionState:
    """The state of one session."""

    active: ActiveSet
    surface: Surface
    _held: dict[ServerIdentity, Held] = field(default_factory=dict)
    _specs: dict[CapabilityId, CapabilitySpec] = field(default_factory=dict)

    def activate(self, capability: CapabilitySpec, servers: Sequence[Held], now: float) -> Step:
        """Commit a capability whose servers are all connected."""
        replaced: list[Held] = []
        relisted = Step()
        for server in servers:
            old = self._held.get(server.identity)
            if old is not None and old.instance != server.instance:
                replaced.append(old)
            if old is not None and old.tools != server.tools:
                # What others show of this server follows its newest list.
                step = self.server_lists(server.identity, server.instance, server.tools)
                relisted = relisted.then(step)
            self._held[server.identity] = server
        self._specs[capability.id] = capability
        grants = [grant for server in servers for grant in _granted(capability, server)]
        identities = [server.identity for server in servers]
        change = self.active.activate(capability.id, identities, grants, now)
        return relisted.then(self._follow(change, replaced=tuple(replaced)))

    def deactivate(self, capability: CapabilityId) -> Step:
        """Take a capability off; one that is not on changes nothing."""
        self._specs.pop(capability, None)
        return self._follow(self.active.deactivate(capability))

    def server_lists(
        self, server: ServerIdentity, instance: InstanceId, tools: Sequence[ToolDefinition]
    ) -> Step:
        """Filter again after a held server listed other tools or came back as another instance."""
        old = self._held.get(server)
        if old is None:
            return Step()
        held = self._held[server] = Held(old.spec, server, instance, tuple(tools))
        grants = {
            activation.id: tuple(_granted(self._specs[activation.id], held))
            for activation in self.active.activations
            if server in activation.servers
        }
        change = self.active.replace_grants(server, grants)
        redefined = self.surface.redefine({Grant(server, tool.name): tool for tool in tools})
        return self._follow(change, tuple(redefined))

    def restore(
        self,
        activations: Iterable[Activation],
        specs: Mapping[CapabilityId, CapabilitySpec],
        servers: Iterable[Held],
        names: Mapping[Grant, WireName],
        order: Sequence[Grant],
    ) -> None:
        """Take over what a session of this key had; more than the cap allows goes again."""
        self._held = {held.identity: held for held in servers}
        self.active.restore(
            each
            for each in activations
            if each.id in specs and all(server in self._held for server in each.servers)
        )
        self._specs = {key: spec for key, spec in specs.items() if key in self.active}
        needed = self.active.servers
        self._held = {key: held for key, held in self._held.items() if key in needed}
        granted = self.active.grants
        definitions = self._definitions()
        kept = [grant for grant in (*order, *granted) if grant in granted and grant in definitions]
        self.surface.restore(names)
        self.surface.add(kept, self._server_names(), definitions)

    def held(self, server: ServerIdentity) -> Held | None:
        """Return how a server is held."""
        return self._held.get(server)

    @property
    def servers(self) -> tuple[Held, ...]:
        """Every server that the session holds, in the order of their first need."""
        return tuple(self._held.values())

    def spec(self, capability: CapabilityId) -> CapabilitySpec:
        """Return the definition of an active capability."""
        return self._specs[capability]

    def held_as(self, instance: InstanceId) -> Held | None:
        """Return which server an instance is held as."""
        return next((h for h in self._held.values() if h.instance == instance), None)

    def find_active(self, name: str) -> CapabilityId | None:
        """Return the active capability that `name` or `tap/name` means."""
        ids = (activation.id for activation in self.active.activations)
        return next((id_ for id_ in ids if name in {str(id_.name), str(id_)}), None)

    def tools_of(self, capability: CapabilityId) -> list[WireName]:
        """Return what an active capability shows, in the surface's order."""
        for activation in self.active.activations:
            if activation.id == capability:
                granted = set(activation.grants)
                return [shown.name for shown in self.surface.shown if shown.grant in granted]
        return []

    @property
    def available(self) -> int:
        """How many tools the held servers offer, own ones included."""
        own = len(self.surface) - len(self.surface.shown)
        return own + sum(len(held.tools) for held in self._held.values())

    def _follow(
        self,
        change: Change,
        redefined: tuple[WireName, ...] = (),
        replaced: tuple[Held, ...] = (),
    ) -> Step:
        """Bring surface and holds to where the active set is."""
        removed = self.surface.remove(change.removed)
        added = self.surface.add(change.added, self._server_names(), self._definitions())
        for evicted in change.evicted:
            self._specs.pop(evicted, None)
        unheld = tuple(self._held.pop(server) for server in change.unheld)
        return Step(tuple(added), tuple(removed), redefined, change.evicted, replaced + unheld)

    def _definitions(self) -> dict[Grant, ToolDefinition]:
        return {
            Grant(held.identity, tool.name): tool
            for held in self._held.values()
            for tool in held.tools
        }

    def _server_names(self) -> dict[ServerIdentity, ServerName]:
        return {held.identity: held.spec.name for held in self._held.values()}


def _granted(capability: CapabilitySpec, server: Held) -> list[Grant]:
    names = [tool.name for tool in server.tools]
    # Another capability's definition of the same server may have another name or filter.
    own = (spec for spec in capability.servers if server_identity(spec) == server.identity)
    spec = next(own, server.spec)
    kept = kept_tools(spec.name, names, spec.tools, capability.allowed_tools)
    return [Grant(server.identity, name) for name in kept]
