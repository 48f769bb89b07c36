"""Every tool that a capability can grant: where it is from, and who may use it.

A tool counts once, however many capabilities grant it. A session may use one that its policy
permits and for whose server it has the secrets (10-catalog); what it may not use is barred, with
the reason, and never simply absent.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from capd.core.servers.identity import server_identity
from capd.core.servers.placeholders import wanted_keys
from capd.core.sessions.domains import is_inside
from capd.core.sessions.policy import Policy
from capd.core.tools.names import wire_name
from capd.core.tools.tool_filter import is_named, kept_tools
from capd.core.tools.tool_search import Bar
from capd.core.tools.tool_text import Tool, tool
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    ServerIdentity,
    ServerSpec,
    ToolDefinition,
    WireName,
)

MISSING_SECRETS = "missing_secrets"
_MOST_POLICIES = 16


@dataclass(frozen=True, slots=True)
class Source:
    """Where a tool is from."""

    wire_name: WireName
    spec: ServerSpec
    identity: ServerIdentity
    definition: ToolDefinition
    capabilities: tuple[CapabilityId, ...]
    """Those that grant it, in the catalog's order."""


class KnownTools:
    """The tools of a catalog, by what its servers listed last."""

    def __init__(
        self,
        capabilities: Sequence[CapabilitySpec] = (),
        lists: Mapping[ServerIdentity, Sequence[ToolDefinition]] | None = None,
    ) -> None:
        self.sources: dict[WireName, Source] = {}
        self.tools: list[Tool] = []
        self.eager: dict[ServerIdentity, tuple[ServerSpec, CapabilityId]] = {
            server_identity(spec): (spec, capability.id)
            for capability in reversed(capabilities)
            for spec in capability.servers
            if not spec.lazy and spec.transport != "builtin"
        }
        self._domains = {each.id: each.domains for each in capabilities}
        self._by_tool: dict[tuple[ServerIdentity, str], Source] = {}
        self._denied: dict[Policy, dict[WireName, Bar]] = {}
        self._wanted: dict[ServerIdentity, tuple[str, ...]] = {}
        granting: dict[tuple[ServerIdentity, str], list[CapabilityId]] = {}
        found: dict[tuple[ServerIdentity, str], tuple[ServerSpec, ToolDefinition]] = {}
        for capability in capabilities:
            for spec, definition in _offered(capability, lists or {}):
                key = (server_identity(spec), definition.name)
                found.setdefault(key, (spec, definition))
                granting.setdefault(key, []).append(capability.id)
        for (identity, name), (spec, definition) in found.items():
            wire = wire_name(spec.name, identity, definition.name, self.sources)
            grants = granting[identity, name]
            source = Source(wire, spec, identity, definition, tuple(grants))
            self.sources[wire] = self._by_tool[identity, name] = source
            if identity not in self._wanted:
                self._wanted[identity] = wanted_keys(spec)
            self.tools.append(tool(definition, spec.name, wire, [each.name for each in grants]))

    def source(self, name: str, identity: str = "") -> Source | None:
        """Return the tool of this wire name, or with `identity` of this name at its server."""
        if identity:
            return self._by_tool.get((ServerIdentity(identity), name))
        return self.sources.get(WireName(name))

    def bars(self, policy: Policy, keys: frozenset[str] | None) -> dict[WireName, Bar]:
        """Return every tool that a session may not use; `keys` are those that it has values of."""
        barred = self._denied.get(policy)
        if barred is None:
            if len(self._denied) >= _MOST_POLICIES:
                self._denied.clear()
            barred = self._denied[policy] = dict(self._denied_by(policy))
        if keys is None:
            return barred
        lacking = {
            identity: missing
            for identity, wanted in self._wanted.items()
            if (missing := [key for key in wanted if key not in keys])
        }
        if not lacking:
            return barred
        secret = {
            wire: _lacks(lacking[source.identity])
            for wire, source in self.sources.items()
            if source.identity in lacking
        }
        return {**secret, **barred}

    def besides(self, domain: str, active: Collection[CapabilityId]) -> set[WireName]:
        """Return what is outside a session's domain, or on with a capability."""
        return {
            wire
            for wire, source in self.sources.items()
            if any(each in active for each in source.capabilities)
            or not any(is_inside(domain, self._domains[each]) for each in source.capabilities)
        }

    def matching(self, patterns: Iterable[str], barred: Mapping[WireName, Bar]) -> list[Source]:
        """Return what may be used and matches, by pattern, then in the catalog's order."""
        chosen: dict[WireName, Source] = {}
        for pattern in patterns:
            for wire, source in self.sources.items():
                if wire not in barred and is_named(
                    pattern, source.spec.name, source.definition.name, wire
                ):
                    chosen.setdefault(wire, source)
        return list(chosen.values())

    def _denied_by(self, policy: Policy) -> Iterator[tuple[WireName, Bar]]:
        for wire, source in self.sources.items():
            bar = policy.bar(source.spec.name, source.definition.name)
            if bar is not None:
                yield wire, bar


def _lacks(keys: Sequence[str]) -> Bar:
    return Bar(MISSING_SECRETS, f"needs {', '.join(keys)}, which this session does not have")


def _offered(
    capability: CapabilitySpec, lists: Mapping[ServerIdentity, Sequence[ToolDefinition]]
) -> Iterator[tuple[ServerSpec, ToolDefinition]]:
    for server in capability.servers:
        listed = lists.get(server_identity(server))
        if listed is None:
            continue
        names = [definition.name for definition in listed]
        kept = set(kept_tools(server.name, names, server.tools, capability.allowed_tools))
        yield from ((server, each) for each in listed if each.name in kept)
