"""What a session may use, and which calls a person has to approve, by the user's rules.

A rule is a pattern: `server:name` with the shell's globs in either part, or `name` alone for every
server. A name is that of a tool or prompt, or the URI of a resource or template. Whatever matches a
deny rule is denied. If a table has allow rules, whatever matches none of them is denied as well.
Several tables may apply to a session, such as `[policy]` and `[policy.clients.zed]`; a name has to
be permitted by each.

An ask rule forbids nothing: a person approves each call of a tool that it matches. In such a rule
`destructive` also stands for every tool that counts as destructive (`core/sessions/approval`).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from capd.core.folders import is_at_or_below
from capd.core.globs import GlobSet, matches
from capd.core.protocol.resource_uris import spellings
from capd.core.sessions.approval import DESTRUCTIVE, AskRule, Hint, counts_as_destructive
from capd.core.tools.tool_search import Restriction
from capd_protos.types import CapabilityId, ServerName, ToolName

_MOST_VERDICTS = 8192
"""How many verdicts one policy caches. The same lists of tools are checked again and again."""


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """One table of the user's rules, and where it is in the configuration."""

    place: str
    """The table's name for a person: `[policy]` or `[policy.clients.zed]`."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    capabilities: tuple[str, ...] | None = None
    """Globs of the capabilities that may be used, as `name` or `tap/name`; None for all."""

    @property
    def is_empty(self) -> bool:
        """Whether these rules deny nothing and ask for nothing."""
        return not (self.allow or self.deny or self.ask) and self.capabilities is None


@dataclass(frozen=True, slots=True)
class Policy:
    """All tables of rules that apply to one session: what it may use, and what it must ask for."""

    tables: tuple[PolicyRules, ...] = ()
    off: tuple[tuple[str, str], ...] = ()
    """Capabilities that a profile turns off (`name` or `tap/name`), each with that profile."""
    _verdicts: dict[tuple[str, str], Restriction | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Cached verdicts by server and name. They stay valid, because the tables never change."""
    asks: bool = field(init=False, repr=False, compare=False)
    """Whether any table has an ask rule."""

    def __post_init__(self) -> None:
        """Look for ask rules once, because each call of a tool depends on whether there are any."""
        object.__setattr__(self, "asks", any(table.ask for table in self.tables))

    def restriction(self, server: ServerName | str, name: str) -> Restriction | None:
        """Return why the tool or prompt `name` of `server` is denied; None if it is permitted."""
        if not self.tables:
            return None
        asked = (server, name)
        if asked not in self._verdicts:
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[asked] = self._first_restriction(server, name)
        return self._verdicts[asked]

    def permitted(self, servers: Collection[ServerName], names: list[ToolName]) -> list[ToolName]:
        """Return those of the tools `names` that policy permits.

        `servers` are the names of one server. A tool must be permitted under each of them.
        """
        if not self.tables:
            return names
        return [
            name
            for name in names
            if all(self.restriction(server, name) is None for server in servers)
        ]

    def _first_restriction(self, server: str, name: str) -> Restriction | None:
        # A deny rule ignores case, so that a capital letter cannot evade it.
        folded_server, folded_name = server.casefold(), name.casefold()
        for table in self.tables:
            denied = _rules(table.deny, is_folded=True).first(folded_server, folded_name)
            if denied is not None:
                return _by_rule(denied, table)
            if table.allow and _rules(table.allow).first(server, name) is None:
                return _by_no_rule(table)
        return None

    def ask_rule(self, server: ServerName | str, name: str, hint: Hint) -> AskRule | None:
        """Return the rule by which a person has to approve calls of this tool; None if none does.

        `hint` says what the tool's annotations tell about its effects. Case is ignored, as in deny
        rules.
        """
        folded_server, folded_name = server.casefold(), name.casefold()
        for table in self.tables:
            rules = _rules(table.ask, is_folded=True)
            found = rules.first(folded_server, folded_name)
            if found is None and counts_as_destructive(hint):
                found = rules.first_literal(folded_server, DESTRUCTIVE)
            if found is not None:
                return AskRule(found, table.place)
        return None

    def restrict_resource(self, server: ServerName | str, uri: str) -> Restriction | None:
        """Return why a resource or template is denied; None if every spelling is permitted.

        A URI has several spellings, such as with and without percent-encoding, and a rule on any of
        them denies it.
        """
        restrictions = (self.restriction(server, spelling) for spelling in spellings(uri))
        return next((restriction for restriction in restrictions if restriction is not None), None)

    def restrict_capability(self, capability: CapabilityId) -> Restriction | None:
        """Return why a capability is denied by its own name; None if it is not.

        A profile may switch it off, and a table may have a list of permitted capabilities.
        """
        names = (str(capability.name), str(capability))
        for name, profile in self.off:
            if name in names:
                return Restriction("denied", f"the profile {profile} keeps it off")
        for table in self.tables:
            if table.capabilities is not None and not any(
                matches(name, pattern) for pattern in table.capabilities for name in names
            ):
                return Restriction(
                    "denied", f"denied by policy: not among the capabilities of {table.place}"
                )
        return None

    def restrict_server(self, server: ServerName | str) -> Restriction | None:
        """Return why a server is denied as a whole; None if part of it may be permitted."""
        for table in self.tables:
            for pattern in table.deny:
                if _matches_all(pattern.casefold(), server.casefold()):
                    return _by_rule(pattern, table)
            if table.allow and not any(_speaks_of(each, server) for each in table.allow):
                return _by_no_rule(table)
        return None


def policy_for(
    everyone: PolicyRules,
    clients: Iterable[tuple[str, PolicyRules]],
    projects: Iterable[tuple[str, PolicyRules]],
    names: Iterable[str],
    project: str,
) -> Policy:
    """Return the policy for a client with any of `names` in `project`.

    Clients are matched by globs. A project's table applies to its folder and everything below it.
    """
    known = [name.casefold() for name in names]
    tables = [everyone]
    tables += [
        rules
        for pattern, rules in clients
        if any(matches(name, pattern.casefold()) for name in known)
    ]
    tables += [rules for folder, rules in projects if is_at_or_below(project, folder)]
    return shared_policy(tuple(table for table in tables if not table.is_empty))


@lru_cache(maxsize=64)
def shared_policy(tables: tuple[PolicyRules, ...], off: tuple[tuple[str, str], ...] = ()) -> Policy:
    """Return the policy of these tables: the same object for all sessions that have them.

    The object caches verdicts.
    """
    return Policy(tables, off)


def _by_rule(pattern: str, table: PolicyRules) -> Restriction:
    return Restriction("denied", f"denied by policy: rule '{pattern}' in {table.place}")


def _by_no_rule(table: PolicyRules) -> Restriction:
    return Restriction("denied", f"denied by policy: no allow rule in {table.place} matches it")


def _parts(pattern: str) -> tuple[str, str]:
    """Return the two parts of a rule's pattern: for the server, and for the name."""
    scope, colon, rest = pattern.partition(":")
    return (scope, rest) if colon else ("*", pattern)


class _Rules:
    """The patterns of one list of rules, compiled so that one search finds all that match."""

    def __init__(self, patterns: tuple[str, ...], *, is_folded: bool) -> None:
        self._patterns = patterns
        parts = [_parts(each.casefold() if is_folded else each) for each in patterns]
        self._scopes = GlobSet([scope for scope, _ in parts])
        self._names = GlobSet([name for _, name in parts])
        self._name_parts = tuple(name for _, name in parts)
        self._by_server = lru_cache(maxsize=256)(self._of_server)

    def first(self, server: str, name: str) -> str | None:
        """Return the first rule that matches, as it was written; None if no rule matches."""
        named = self._names.matching(name)
        if not named:
            return None
        scoped = self._by_server(server)
        return next((self._patterns[n] for n in named if n in scoped), None)

    def first_literal(self, server: str, word: str) -> str | None:
        """Return the first rule for `server` whose name is just `word`; None if there is none."""
        scoped = self._by_server(server)
        named = (n for n, name in enumerate(self._name_parts) if name == word)
        return next((self._patterns[n] for n in named if n in scoped), None)

    def _of_server(self, server: str) -> frozenset[int]:
        return frozenset(self._scopes.matching(server))


@lru_cache(maxsize=512)
def _rules(patterns: tuple[str, ...], *, is_folded: bool = False) -> _Rules:
    return _Rules(patterns, is_folded=is_folded)


def _matches_all(pattern: str, server: str) -> bool:
    scope, rest = _parts(pattern)
    return matches(server, scope) and bool(rest) and not rest.strip("*")


def _speaks_of(pattern: str, server: str) -> bool:
    return matches(server, _parts(pattern)[0])
