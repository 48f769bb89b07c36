"""What is switched on in one session, and the LRU rule that evicts it when room is needed.

    pins            always on, never evicted
    capabilities    at most `cap` that show tools, and at most `cap` more whose servers show none
    single tools    at most `tool_cap`

A capability holds grants, which are pairs of a server's identity and a tool's name. A single tool
is one grant. The least recently used capability is evicted first, and so is the least recently used
single tool. A successful call of a tool is a use of every capability and single tool that grants
it. An explicit request for a capability is a use of it, too. Listing and searching are no uses
(docs/design/surface.md).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from capd_protos.types import CapabilityId, ServerIdentity, ToolName

DEFAULT_CAP = 4
DEFAULT_TOOL_CAP = 24


@dataclass(frozen=True, slots=True)
class Grant:
    """One tool of one server, granted by a capability or a pin, or switched on by itself."""

    server: ServerIdentity
    tool: ToolName


@dataclass(frozen=True, slots=True)
class Activation:
    """A capability that is on: its servers, its grants, and when it was last used."""

    id: CapabilityId
    servers: tuple[ServerIdentity, ...]
    grants: tuple[Grant, ...]
    last_used_at: float

    @property
    def takes_slot(self) -> bool:
        """Whether the capability shows tools, and so counts against the limit of capabilities.

        Capabilities that show none have a limit of their own.
        """
        return bool(self.grants)


@dataclass(frozen=True, slots=True)
class ActiveSetChange:
    """What one change of the active set added, removed and evicted."""

    added: tuple[Grant, ...] = ()
    """Grants that are new."""
    removed: tuple[Grant, ...] = ()
    """Grants that no longer exist."""
    evicted: tuple[CapabilityId, ...] = ()
    evicted_tools: tuple[Grant, ...] = ()
    unheld: tuple[ServerIdentity, ...] = ()
    """Servers that nothing needs any longer."""


@dataclass(frozen=True, slots=True)
class _Before:
    grants: dict[Grant, None]
    servers: dict[ServerIdentity, None]


@dataclass(slots=True)
class ActiveSet:
    """What is switched on in one session, in the order in which it was first switched on."""

    cap: int = DEFAULT_CAP
    tool_cap: int = DEFAULT_TOOL_CAP
    uses: int = 0
    """How many calls of granted tools succeeded in this session."""
    _activations: dict[CapabilityId, Activation] = field(default_factory=dict)
    _tools: dict[Grant, float] = field(default_factory=dict)
    _pins: dict[ServerIdentity, tuple[Grant, ...]] = field(default_factory=dict)

    def __contains__(self, capability: CapabilityId) -> bool:
        """Tell whether `capability` is on."""
        return capability in self._activations

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Every capability that is on, in the order of first activation."""
        return tuple(self._activations.values())

    def granting(self, grant: Grant) -> list[CapabilityId]:
        """Return the capabilities that grant a tool, in the order of first activation."""
        return [id_ for id_, each in self._activations.items() if grant in each.grants]

    @property
    def tools(self) -> dict[Grant, float]:
        """Every single tool with the time of its last use, in the order of first activation."""
        return dict(self._tools)

    @property
    def pins(self) -> dict[ServerIdentity, tuple[Grant, ...]]:
        """The grants that are always on, by server."""
        return dict(self._pins)

    @property
    def pinned(self) -> frozenset[Grant]:
        """Every grant that is always on."""
        return frozenset(grant for grants in self._pins.values() for grant in grants)

    @property
    def grants(self) -> dict[Grant, None]:
        """The union of all grants: pins, then capabilities, then single tools, each in order."""
        union = {grant: None for grants in self._pins.values() for grant in grants}
        union.update((grant, None) for a in self._activations.values() for grant in a.grants)
        union.update(dict.fromkeys(self._tools))
        return union

    @property
    def servers(self) -> dict[ServerIdentity, None]:
        """The union of all servers, in the order of `grants`."""
        union = dict.fromkeys(self._pins)
        union.update((server, None) for a in self._activations.values() for server in a.servers)
        union.update((grant.server, None) for grant in self._tools)
        return union

    def activate(
        self,
        capability: CapabilityId,
        servers: Iterable[ServerIdentity],
        grants: Iterable[Grant],
        now: float,
    ) -> ActiveSetChange:
        """Switch a capability on with its grants, and evict what is over the limit.

        Return the changes. A capability that is on already counts as used, and its servers and
        grants are replaced.
        """
        before = self._before()
        self._activations[capability] = Activation(
            capability, tuple(dict.fromkeys(servers)), tuple(dict.fromkeys(grants)), now
        )
        evicted = self._evict_over_cap(keep=capability)
        return self._change(before, evicted)

    def activate_tools(
        self, grants: Iterable[Grant], now: float, spared: Sequence[Grant] = ()
    ) -> ActiveSetChange:
        """Switch on the first `tool_cap` of these tools, and evict what is over that limit.

        Return the changes. A tool that is on already keeps its time of last use: being found again
        is not a use. Tools that are switched on together do not evict one another. Tools in
        `spared` are evicted after all others, beginning with the last of them.
        """
        before = self._before()
        wanted = list(dict.fromkeys(grants))[: max(1, self.tool_cap)]
        for grant in wanted:
            self._tools.setdefault(grant, now)
        evicted = self._evict_tools(keep=frozenset(wanted), spared=spared)
        return self._change(before, evicted_tools=evicted)

    def pin(self, server: ServerIdentity, grants: Iterable[Grant]) -> ActiveSetChange:
        """Pin these tools of `server`, in addition to those pinned before; return the changes."""
        before = self._before()
        self._pins[server] = tuple(dict.fromkeys((*self._pins.get(server, ()), *grants)))
        return self._change(before)

    def restore(
        self, activations: Iterable[Activation], tools: Mapping[Grant, float] | None = None
    ) -> None:
        """Replace what is on by what was saved, and evict what is over the limits. Pins stay."""
        self._activations = {activation.id: activation for activation in activations}
        self._tools = dict(tools or {})
        self._evict_over_cap()
        self._evict_tools()

    def deactivate(self, capability: CapabilityId) -> ActiveSetChange:
        """Switch `capability` off; return the changes, none if it is not on."""
        before = self._before()
        self._activations.pop(capability, None)
        return self._change(before)

    def deactivate_tool(self, grant: Grant) -> ActiveSetChange:
        """Switch a single tool off; return the changes, none if it is not on by itself."""
        before = self._before()
        self._tools.pop(grant, None)
        return self._change(before)

    def replace_grants(
        self,
        server: ServerIdentity,
        grants: Mapping[CapabilityId, tuple[Grant, ...]],
        offered: Container[Grant],
        pinned: tuple[Grant, ...] = (),
    ) -> ActiveSetChange:
        """Replace the grants on `server` after its list of tools changed; return the changes.

        `grants` has the new grants on `server` of each capability. A single tool of `server` that
        is not in `offered` is removed. If `server` has pins, `pinned` replaces them.
        """
        before = self._before()
        for capability, its_grants in grants.items():
            if (old := self._activations.get(capability)) is None:
                continue
            others = tuple(grant for grant in old.grants if grant.server != server)
            self._activations[capability] = Activation(
                capability, old.servers, others + its_grants, old.last_used_at
            )
        for grant in list(self._tools):
            if grant.server == server and grant not in offered:
                del self._tools[grant]
        if server in self._pins:
            self._pins[server] = pinned
        # A capability that had no tools took no slot, and may have tools since this change.
        return self._change(before, self._evict_over_cap())

    def touch(self, capability: CapabilityId, now: float) -> None:
        """Count an explicit request for `capability` as its use."""
        if (old := self._activations.get(capability)) is not None:
            self._activations[capability] = Activation(old.id, old.servers, old.grants, now)

    def used(self, grant: Grant, now: float) -> None:
        """Count a successful call of a tool as a use of everything that grants it."""
        self.uses += 1
        for capability, activation in list(self._activations.items()):
            if grant in activation.grants:
                self.touch(capability, now)
        if grant in self._tools:
            self._tools[grant] = now

    def _evict_over_cap(self, keep: CapabilityId | None = None) -> tuple[CapabilityId, ...]:
        evicted: list[CapabilityId] = []
        # Capabilities without tools take no place on the list, but they hold servers: they have a
        # cap of their own. One without servers costs nothing, and stays.
        for takes_slot in (True, False):
            while True:
                group = [
                    each
                    for each in self._activations.values()
                    if each.servers and each.takes_slot is takes_slot
                ]
                if len(group) <= max(1, self.cap):
                    break
                victim = min((a for a in group if a.id != keep), key=lambda a: a.last_used_at)
                del self._activations[victim.id]
                evicted.append(victim.id)
        return tuple(evicted)

    def _evict_tools(
        self, keep: frozenset[Grant] = frozenset(), spared: Sequence[Grant] = ()
    ) -> tuple[Grant, ...]:
        over = len(self._tools) - max(1, self.tool_cap)
        if over <= 0:
            return ()
        oldest_first = sorted(self._tools.items(), key=lambda item: item[1])
        others = [grant for grant, _ in oldest_first if grant not in keep and grant not in spared]
        last_first = [grant for grant in reversed(spared) if grant in self._tools]
        evicted = tuple([*others, *(g for g in last_first if g not in keep)][:over])
        for grant in evicted:
            del self._tools[grant]
        return evicted

    def _before(self) -> _Before:
        return _Before(self.grants, self.servers)

    def _change(
        self,
        before: _Before,
        evicted: tuple[CapabilityId, ...] = (),
        evicted_tools: tuple[Grant, ...] = (),
    ) -> ActiveSetChange:
        grants, servers = self.grants, self.servers
        return ActiveSetChange(
            added=tuple(g for g in grants if g not in before.grants),
            removed=tuple(g for g in before.grants if g not in grants),
            evicted=evicted,
            evicted_tools=evicted_tools,
            unheld=tuple(s for s in before.servers if s not in servers),
        )
