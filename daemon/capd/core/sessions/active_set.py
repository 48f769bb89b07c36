"""What is switched on in one session, and in what order it goes when room is needed.

A capability holds its grants, pairs of a server's identity and a tool. Capabilities that grant
tools take one of `cap` slots; the one whose last use is longest ago goes first. Use is a
successful call through a grant, and every capability with that grant is used by it; listing
and searching are not use (30-activation). Deps-only capabilities take no slot.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from capd_protos.types import CapabilityId, ServerIdentity, ToolName

DEFAULT_CAP = 4


@dataclass(frozen=True, slots=True)
class Grant:
    """Why a tool is visible: a capability with this grant is on."""

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
        """Whether it counts against the cap: it has servers, so it can show tools."""
        return bool(self.servers)


@dataclass(frozen=True, slots=True)
class Change:
    """What one step did, in the order in which it was decided."""

    added: tuple[Grant, ...] = ()
    """Grants that no capability had before."""
    removed: tuple[Grant, ...] = ()
    """Grants that no capability has any more."""
    evicted: tuple[CapabilityId, ...] = ()
    unheld: tuple[ServerIdentity, ...] = ()
    """Servers that no capability needs any more."""


@dataclass(slots=True)
class ActiveSet:
    """The activations of one session, in the order in which they were first switched on."""

    cap: int = DEFAULT_CAP
    _activations: dict[CapabilityId, Activation] = field(default_factory=dict)

    def __contains__(self, capability: CapabilityId) -> bool:
        """Tell whether `capability` is on."""
        return capability in self._activations

    @property
    def activations(self) -> tuple[Activation, ...]:
        """Every activation, oldest first."""
        return tuple(self._activations.values())

    @property
    def grants(self) -> dict[Grant, None]:
        """The union of all grants, in the order of activation."""
        return {grant: None for a in self._activations.values() for grant in a.grants}

    @property
    def servers(self) -> dict[ServerIdentity, None]:
        """The union of all servers, in the order of activation."""
        return {server: None for a in self._activations.values() for server in a.servers}

    def activate(
        self,
        capability: CapabilityId,
        servers: Iterable[ServerIdentity],
        grants: Iterable[Grant],
        now: float,
    ) -> Change:
        """Switch `capability` on with what was found for it, then evict what is over the cap.

        One that is on already is touched and takes its new grants.
        """
        grants_before, servers_before = self.grants, self.servers
        self._activations[capability] = Activation(
            capability, tuple(dict.fromkeys(servers)), tuple(dict.fromkeys(grants)), now
        )
        evicted = self._evict_over_cap(keep=capability)
        return self._change(grants_before, servers_before, evicted)

    def restore(self, activations: Iterable[Activation]) -> None:
        """Take over what was on, as much as the cap allows."""
        self._activations = {activation.id: activation for activation in activations}
        self._evict_over_cap()

    def deactivate(self, capability: CapabilityId) -> Change:
        """Switch `capability` off; one that is not on changes nothing."""
        grants_before, servers_before = self.grants, self.servers
        self._activations.pop(capability, None)
        return self._change(grants_before, servers_before, ())

    def replace_grants(
        self, server: ServerIdentity, grants: dict[CapabilityId, tuple[Grant, ...]]
    ) -> Change:
        """Take over each capability's grants on `server`, after its list of tools changed."""
        grants_before, servers_before = self.grants, self.servers
        for capability, its_grants in grants.items():
            if (old := self._activations.get(capability)) is None:
                continue
            others = tuple(grant for grant in old.grants if grant.server != server)
            self._activations[capability] = Activation(
                capability, old.servers, others + its_grants, old.last_used_at
            )
        return self._change(grants_before, servers_before, ())

    def touch(self, capability: CapabilityId, now: float) -> None:
        """Count an explicit wish for `capability` as its use."""
        if (old := self._activations.get(capability)) is not None:
            self._activations[capability] = Activation(old.id, old.servers, old.grants, now)

    def used(self, grant: Grant, now: float) -> None:
        """Count a successful call of a tool for every capability that grants it."""
        for capability, activation in list(self._activations.items()):
            if grant in activation.grants:
                self.touch(capability, now)

    def _evict_over_cap(self, keep: CapabilityId | None = None) -> tuple[CapabilityId, ...]:
        evicted: list[CapabilityId] = []
        while True:
            slots = [a for a in self._activations.values() if a.takes_slot]
            if len(slots) <= max(1, self.cap):
                return tuple(evicted)
            victim = min((a for a in slots if a.id != keep), key=lambda a: a.last_used_at)
            del self._activations[victim.id]
            evicted.append(victim.id)

    def _change(
        self,
        grants_before: dict[Grant, None],
        servers_before: dict[ServerIdentity, None],
        evicted: tuple[CapabilityId, ...],
    ) -> Change:
        grants, servers = self.grants, self.servers
        return Change(
            added=tuple(g for g in grants if g not in grants_before),
            removed=tuple(g for g in grants_before if g not in grants),
            evicted=evicted,
            unheld=tuple(s for s in servers_before if s not in servers),
        )
