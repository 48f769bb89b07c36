"""Every tool that an installed capability can grant, and which sessions may use it.

A capability grants a tool if it has the tool's server, and its filter keeps the tool. A wire name
is the name under which clients know a tool.

The tools come from the last `tools/list` of each server. Each tool is known once, however many
capabilities grant it. A session may use a tool if the session's policy permits it, a capability of
the session's domain grants it, and the session has the secrets of its server
(docs/design/catalog.md). A tool that a session may not use has a restriction with the reason.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from capd.core.globs import matches
from capd.core.lexical import words
from capd.core.servers.identity import server_identity
from capd.core.servers.placeholders import wanted_keys
from capd.core.sessions.domains import is_inside
from capd.core.sessions.policy import Policy
from capd.core.tools.names import wire_name
from capd.core.tools.tool_edits import DISABLED, edited
from capd.core.tools.tool_filter import is_named, kept_tools
from capd.core.tools.tool_search import Restriction
from capd.core.tools.tool_text import Tool, tool
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    ServerIdentity,
    ServerName,
    ServerSpec,
    ToolDefinition,
    ToolName,
    WireName,
)

_MOST_POLICIES = 16
_MOST_COMMANDS = 3


@dataclass(frozen=True, slots=True)
class Source:
    """One tool: its server, its definition, and the capabilities that grant it."""

    wire_name: WireName
    spec: ServerSpec
    identity: ServerIdentity
    definition: ToolDefinition
    capabilities: tuple[CapabilityId, ...]
    """The capabilities that grant it, in the catalog's order."""
    listed: ToolDefinition | None = None
    """The tool as its server listed it; None if no edit (docs/tools.md) changes it."""


@dataclass(frozen=True, slots=True)
class Eager:
    """A server that is started when a session begins (`lazy = false`), and its capability."""

    spec: ServerSpec
    capability: CapabilitySpec


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A server whose tools are not known, because it was never asked for them."""

    spec: ServerSpec
    capability: CapabilityId
    keys: tuple[str, ...]
    """The keys for which the server needs values."""
    named: frozenset[str]
    """Words of a question that may mean this server: those of its name and its capability's."""


class KnownTools:
    """Every listed tool of a catalog's capabilities by wire name, and why some may not be used."""

    def __init__(
        self,
        capabilities: Sequence[CapabilitySpec] = (),
        lists: Mapping[ServerIdentity, Sequence[ToolDefinition]] | None = None,
    ) -> None:
        self.sources: dict[WireName, Source] = {}
        self.tools: list[Tool] = []
        self._eager = [
            Eager(spec, capability)
            for capability in capabilities
            for spec in capability.servers
            if not spec.lazy and spec.transport != "builtin"
        ]
        self._by_tool: dict[tuple[ServerIdentity, str], Source] = {}
        self._granted: dict[CapabilityId, list[WireName]] = {}
        self._disabled: dict[WireName, Restriction] = {}
        self._denied: dict[Policy, dict[WireName, Restriction]] = {}
        self._denied_capabilities: dict[Policy, dict[CapabilityId, Restriction]] = {}
        self._wanted: dict[ServerIdentity, tuple[str, ...]] = {}
        self._domains = {each.id: each.domains for each in capabilities}
        # The tools that each capability keeps of each of its servers; None if not known yet.
        self._offers: dict[CapabilityId, list[tuple[ServerName, tuple[ToolName, ...] | None]]] = {}
        self._unlisted: list[Unlisted] = []
        granting: dict[tuple[ServerIdentity, str], list[CapabilityId]] = {}
        found: dict[tuple[ServerIdentity, str], tuple[ServerSpec, ToolDefinition]] = {}
        for capability in capabilities:
            offers = self._offers[capability.id] = []
            for spec, kept in _offered(capability, lists or {}):
                offers.append((spec.name, None if kept is None else tuple(t.name for t in kept)))
                if kept is None:
                    own = capability.id.name.partition("-")[2] or capability.id.name
                    named = frozenset(words(f"{spec.name} {own}"))
                    keys = wanted_keys(spec)
                    self._unlisted.append(Unlisted(spec, capability.id, keys, named))
                for definition in kept or ():
                    key = (server_identity(spec), definition.name)
                    found.setdefault(key, (spec, definition))
                    granting.setdefault(key, []).append(capability.id)
        for (identity, name), (spec, definition) in found.items():
            edit = next((each for each in spec.edits if each.tool == name), None)
            made = edited(definition, edit) if edit is not None else None
            shown = made.definition if made is not None else definition
            wire = wire_name(spec.name, identity, shown.shown_name, self.sources)
            grants = granting[identity, name]
            source = Source(
                *(wire, spec, identity, shown, tuple(grants)),
                definition if made is not None else None,
            )
            self.sources[wire] = self._by_tool[identity, name] = source
            for id_ in grants:
                self._granted.setdefault(id_, []).append(wire)
            if edit is not None and edit.is_disabled:
                self._disabled[wire] = Restriction("denied", DISABLED)
            if identity not in self._wanted:
                self._wanted[identity] = wanted_keys(spec)
            self.tools.append(tool(shown, spec.name, wire, [each.name for each in grants]))

    def source(self, name: str, identity: str = "") -> Source | None:
        """Return the tool with this wire name; None if there is none.

        With `identity`, `name` is the tool's own name at the server with that identity.
        """
        if identity:
            return self._by_tool.get((ServerIdentity(identity), name))
        return self.sources.get(WireName(name))

    def find(self, name: str) -> Source | None:
        """Return the tool with this wire name, or with this `server:tool`; None if there is none.

        In the second form, `tool` is its own name at the server, or the one that an edit gives it.
        """
        by_wire = self.source(name)
        if by_wire is not None:
            return by_wire
        server, _, own = name.partition(":")
        of_server = [each for each in self.sources.values() if each.spec.name == server]
        by_own_name = (each for each in of_server if each.definition.name == own)
        by_new_name = (each for each in of_server if each.definition.shown_name == own)
        return next(by_own_name, None) or next(by_new_name, None)

    def eager(self, policy: Policy, domain: str = "") -> dict[ServerIdentity, Eager]:
        """Return the servers to start at the beginning of a session with this policy and domain."""
        return {
            server_identity(each.spec): each
            for each in reversed(self._eager)
            if is_inside(domain, each.capability.domains)
            and policy.restrict_server(each.spec.name) is None
            and policy.restrict_capability(each.capability.id) is None
        }

    def restrictions(
        self, policy: Policy, keys: frozenset[str] | None, domain: str = ""
    ) -> dict[WireName, Restriction]:
        """Return every tool that a session may not use, with the reason.

        `keys` are the keys for which the session has values; None to ignore missing values.
        `domain` is the session's domain.
        """
        denied = self._denied.get(policy)
        if denied is None:
            if len(self._denied) >= _MOST_POLICIES:
                self._denied.clear()
            denied = {**self._disabled, **dict(self._denied_by(policy))}
            self._denied[policy] = denied
        outside = dict(self._outside(domain)) if domain else {}
        secret = dict(self._lacking(keys)) if keys is not None else {}
        return {**secret, **outside, **denied} if secret or outside else denied

    def locked(
        self, asked: str, policy: Policy, keys: frozenset[str] | None, domain: str = ""
    ) -> dict[ServerName, tuple[str, ...]]:
        """Return, for servers that the question `asked` names, the keys without a value.

        Only servers that were never asked for their tools are included. For the others, the
        restriction of each tool says what is missing.
        """
        if keys is None:
            return {}
        asked_words = frozenset(words(asked))
        found: dict[ServerName, tuple[str, ...]] = {}
        for each in self._unlisted:
            missing = tuple(key for key in each.keys if key not in keys)
            if not missing or asked_words.isdisjoint(each.named):
                continue
            is_inside_domain = is_inside(domain, self._domains[each.capability])
            is_denied = policy.restrict_server(each.spec.name) or policy.restrict_capability(
                each.capability
            )
            if is_inside_domain and not is_denied:
                found.setdefault(each.spec.name, missing)
        return found

    def denied_capabilities(self, policy: Policy) -> dict[CapabilityId, Restriction]:
        """Return every capability that `policy` denies completely, with the first reason.

        A capability is denied if `policy` denies its name, or every one of its servers and tools. A
        capability with unknown tools is not denied, unless its servers are denied as a whole.
        """
        if not policy.tables:
            return {}
        denied = self._denied_capabilities.get(policy)
        if denied is None:
            if len(self._denied_capabilities) >= _MOST_POLICIES:
                self._denied_capabilities.clear()
            found = (
                (id_, policy.restrict_capability(id_) or _restriction_of(offers, policy))
                for id_, offers in self._offers.items()
            )
            denied = {id_: restriction for id_, restriction in found if restriction is not None}
            self._denied_capabilities[policy] = denied
        return denied

    def granted_by(self, active: Collection[CapabilityId]) -> set[WireName]:
        """Return the wire names of all tools that any of the capabilities in `active` grants."""
        return {wire for each in active for wire in self._granted.get(each, ())}

    def tools_of(self, capability: CapabilityId) -> list[WireName] | None:
        """Return a capability's tools in the order of `sources`; None if it grants none."""
        return self._granted.get(capability)

    def of_capabilities(self, pattern: str, category: str) -> set[WireName] | None:
        """Return the tools of the capabilities that pass both filters; None if both are empty.

        `pattern` is a glob of capabilities' names. `category` is a domain, a name, or the part of a
        name before the first dash: `messaging` selects `messaging-slack` too.
        """
        if not pattern and not category:
            return None
        wanted = category.casefold()
        chosen = [
            id_
            for id_, domains in self._domains.items()
            if (not pattern or matches(id_.name, pattern))
            and (
                not wanted
                or wanted in {each.casefold() for each in domains}
                or wanted in {id_.name.casefold(), id_.name.partition("-")[0].casefold()}
            )
        ]
        return self.granted_by(frozenset(chosen))

    def lists(self, capability: CapabilityId) -> bool:
        """Tell whether every server of a capability has listed its tools."""
        offers = self._offers.get(capability)
        return offers is not None and all(tools is not None for _, tools in offers)

    def matching(
        self, patterns: Iterable[str], restricted: Mapping[WireName, Restriction]
    ) -> list[Source]:
        """Return the tools that match a pattern, in the order of `patterns`, then of the catalog.

        Tools in `restricted` are left out.
        """
        chosen: dict[WireName, Source] = {}
        for pattern in patterns:
            for wire, source in self.sources.items():
                if wire not in restricted and is_named(
                    pattern, source.spec.name, source.definition.name, wire
                ):
                    chosen.setdefault(wire, source)
        return list(chosen.values())

    def _denied_by(self, policy: Policy) -> Iterator[tuple[WireName, Restriction]]:
        for wire, source in self.sources.items():
            restriction = policy.restriction(source.spec.name, source.definition.name)
            if restriction is None:
                # A tool may be used if any capability that grants it is permitted.
                restricted = [policy.restrict_capability(each) for each in source.capabilities]
                restriction = restricted[0] if restricted and all(restricted) else None
            if restriction is not None:
                yield wire, restriction

    def _outside(self, domain: str) -> Iterator[tuple[WireName, Restriction]]:
        for wire, source in self.sources.items():
            of = [self._domains[each] for each in source.capabilities]
            if not any(is_inside(domain, domains) for domains in of):
                named = ", ".join(dict.fromkeys(name for domains in of for name in domains))
                yield (
                    wire,
                    Restriction(
                        "outside_domain", f"for {named}; this session's domain is '{domain}'"
                    ),
                )

    def _lacking(self, keys: frozenset[str]) -> Iterator[tuple[WireName, Restriction]]:
        lacking = {
            identity: missing
            for identity, wanted in self._wanted.items()
            if (missing := [key for key in wanted if key not in keys])
        }
        if not lacking:
            return
        for wire, source in self.sources.items():
            if source.identity in lacking:
                yield wire, lacks(lacking[source.identity])


def _restriction_of(
    offers: Sequence[tuple[ServerName, tuple[ToolName, ...] | None]], policy: Policy
) -> Restriction | None:
    """Return why no tool of a capability may be used.

    Return None if a tool may be used, or if the tools are not known.
    """
    first: Restriction | None = None
    for server, tools in offers:
        restriction = policy.restrict_server(server)
        if restriction is None and tools is None:
            return None
        restrictions = (
            [restriction]
            if restriction
            else [policy.restriction(server, tool) for tool in tools or ()]
        )
        if None in restrictions:
            return None
        first = next((each for each in (first, *restrictions) if each is not None), None)
    return first


def lacks(keys: Sequence[str]) -> Restriction:
    """Return the restriction for a server's tools because `keys` have no value in the session."""
    commands = " and ".join(f"`capd secret set {key}`" for key in keys[:_MOST_COMMANDS])
    more = " ..." if len(keys) > _MOST_COMMANDS else ""
    return Restriction(
        "missing_secrets",
        f"needs {', '.join(keys)}, which this session does not have; "
        f"tell the user to run {commands}{more}",
    )


def _offered(
    capability: CapabilitySpec, lists: Mapping[ServerIdentity, Sequence[ToolDefinition]]
) -> Iterator[tuple[ServerSpec, list[ToolDefinition] | None]]:
    for server in capability.servers:
        listed = lists.get(server_identity(server))
        if listed is None:
            yield server, None
            continue
        names = [definition.name for definition in listed]
        kept = set(kept_tools(server.name, names, server.tools, capability.allowed_tools))
        yield server, [each for each in listed if each.name in kept]
