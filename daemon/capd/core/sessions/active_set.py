"""What is switched on in one session, and the LRU rule that evicts it when room is needed.

    pins                  always on, in neither set, never evicted
    capabilities          at most `cap` that show tools; as many with servers that show none
    single tools          at most `tool_cap`

A capability holds its grants, pairs of a server's identity and a tool; a single tool is one grant.
If a set is full, the least recently used goes first. A use is a successful call through a grant,
and counts for everything with that grant; listing and searching are no uses
(docs/design/surface.md).
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from capd_protos.types import CapabilityId, ServerIdentity, ToolName

DEFAULT_CAP = 4
DEFAULT_TOOL_CAP = 24


@dataclass(frozen=True, slots=True)
class Grant:
    """Why a tool is visible: it is on by itself, or through a capability."""

    server: ServerIdentity
    tool: ToolName


@dataclass(frozen=True, slots=True)
class Activation:
    """One capability that is on."""

    id: CapabilityId
    servers: tuple[ServerIdentity, ...]
    grants: tuple[Grant, ...]
    last_used_at: float

    @property
    def takes_slot(self) -> bool:
        """Whether it counts against the cap: it shows tools."""
        return bool(self.grants)


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of one step, in the order in which they were decided."""

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
    """The activations of one session, in the order in which they were first switched on."""

    cap: int = DEFAULT_CAP
    tool_cap: int = DEFAULT_TOOL_CAP
    uses: int = 0
    """Successful calls."""
    _activations: dict[CapabilityId, Activation] = field(default_factory=dict)
    _tools: dict[Grant, float] = field(default_factory=dict)
    _pins: dict[ServerIdentity, tuple[Grant, ...]] = field(default_factory=dict)

    def __contains__(self, capability: CapabilityId) -> bool:
        """Tell whether `capability` is on."""
        return capability in self._activations

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Every activation, oldest first."""
        return tuple(self._activations.values())

    @property
    def tools(self) -> dict[Grant, float]:
        """Every single tool with its last use, oldest first."""
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
    ) -> Change:
        """Switch `capability` on with its grants, then evict what is over the cap.

        A capability that is on already counts as used and gets the new grants.
        """
        before = self._before()
        self._activations[capability] = Activation(
            capability, tuple(dict.fromkeys(servers)), tuple(dict.fromkeys(grants)), now
        )
        evicted = self._evict_over_cap(keep=capability)
        return self._change(before, evicted)

    def activate_tools(
        self, grants: Iterable[Grant], now: float, spared: Sequence[Grant] = ()
    ) -> Change:
        """Switch single tools on, as many as the cap allows, then evict what is over it.

        A tool that is on already stays as it is: searching is not use. Tools that are switched on
        together do not evict one another. The `spared` ones are evicted after all others, the last
        one first.
        """
        before = self._before()
        wanted = list(dict.fromkeys(grants))[: max(1, self.tool_cap)]
        for grant in wanted:
            self._tools.setdefault(grant, now)
        evicted = self._evict_tools(keep=frozenset(wanted), spared=spared)
        return self._change(before, evicted_tools=evicted)

    def pin(self, server: ServerIdentity, grants: Iterable[Grant]) -> Change:
        """Require `server` and switch these of its tools on permanently."""
        before = self._before()
        self._pins[server] = tuple(dict.fromkeys((*self._pins.get(server, ()), *grants)))
        return self._change(before)

    def restore(
        self, activations: Iterable[Activation], tools: Mapping[Grant, float] | None = None
    ) -> None:
        """Restore what was on, as much as the caps allow."""
        self._activations = {activation.id: activation for activation in activations}
        self._tools = dict(tools or {})
        self._evict_over_cap()
        self._evict_tools()

    def deactivate(self, capability: CapabilityId) -> Change:
        """Switch `capability` off. If it is not on, nothing changes."""
        before = self._before()
        self._activations.pop(capability, None)
        return self._change(before)

    def deactivate_tool(self, grant: Grant) -> Change:
        """Switch a single tool off. If it is not on by itself, nothing changes."""
        before = self._before()
        self._tools.pop(grant, None)
        return self._change(before)

    def replace_grants(
        self,
        server: ServerIdentity,
        grants: Mapping[CapabilityId, tuple[Grant, ...]],
        offered: Container[Grant],
        pinned: tuple[Grant, ...] = (),
    ) -> Change:
        """Replace the grants on `server` after its list of tools changed.

        `grants` are each capability's own. A single tool that is not `offered` is removed.
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
        # What had no tools took no slot, and may have some by now.
        return self._change(before, self._evict_over_cap())

    def touch(self, capability: CapabilityId, now: float) -> None:
        """Count an explicit request for `capability` as its use."""
        if (old := self._activations.get(capability)) is not None:
            self._activations[capability] = Activation(old.id, old.servers, old.grants, now)

    def used(self, grant: Grant, now: float) -> None:
        """Count a successful call of a tool for everything that grants it."""
        self.uses += 1
        for capability, activation in list(self._activations.items()):
            if grant in activation.grants:
                self.touch(capability, now)
        if grant in self._tools:
            self._tools[grant] = now

    def _evict_over_cap(self, keep: CapabilityId | None = None) -> tuple[CapabilityId, ...]:
        evicted: list[CapabilityId] = []
        # What shows no tool makes no room for one, and holds servers all the same: as many again.
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
    ) -> Change:
        grants, servers = self.grants, self.servers
        return Change(
            added=tuple(g for g in grants if g not in before.grants),
            removed=tuple(g for g in before.grants if g not in grants),
            evicted=evicted,
            evicted_tools=evicted_tools,
            unheld=tuple(s for s in before.servers if s not in servers),
        )
