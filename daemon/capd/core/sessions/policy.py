"""What a session may not use, by the user's own rules.

A rule is a pattern like those of `allowed_tools`: `server:tool` with the shell's globs in either
part, or `tool` alone for every server. A deny rule that matches denies. Where there are allow
rules, what none of them matches is denied as well; each set of them narrows further.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from capd.core.tools.tool_search import Bar
from capd_protos.types import ServerName, ToolName

DENIED = "denied"


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """One table of rules, and where it stands."""

    place: str
    """For a person: `[policy]` or `[policy.clients.zed]`."""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """Every table that applies to one session."""

    tables: tuple[PolicyRules, ...] = ()

    def bar(self, server: ServerName | str, tool: ToolName | str) -> Bar | None:
        """Return why a tool is denied, None where it is permitted."""
        for table in self.tables:
            for pattern in table.deny:
                # A rule that forbids must not be passed by for a capital letter.
                if _matches(pattern.casefold(), server.casefold(), tool.casefold()):
                    reason = f"denied by policy: rule '{pattern}' in {table.place}"
                    return Bar(DENIED, reason)
            if table.allow and not any(_matches(each, server, tool) for each in table.allow):
                return Bar(DENIED, f"denied by policy: no allow rule in {table.place} matches it")
        return None


def policy_for(
    everyone: PolicyRules,
    clients: Iterable[tuple[str, PolicyRules]],
    projects: Iterable[tuple[str, PolicyRules]],
    names: Iterable[str],
    project: str,
) -> Policy:
    """Return what applies to a client of any of `names` in `project`.

    Clients are named by globs, projects by their folder: what is below it is in it.
    """
    known = [name.casefold() for name in names]
    tables = [everyone]
    tables += [
        rules
        for pattern, rules in clients
        if any(fnmatchcase(name, pattern.casefold()) for name in known)
    ]
    tables += [rules for folder, rules in projects if _is_within(project, folder)]
    return Policy(tuple(table for table in tables if table.allow or table.deny))


def _matches(pattern: str, server: str, tool: str) -> bool:
    scope, colon, rest = pattern.partition(":")
    if not colon:
        return fnmatchcase(tool, pattern)
    return fnmatchcase(server, scope) and fnmatchcase(tool, rest)


def _is_within(project: str, folder: str) -> bool:
    inside = folder.rstrip("/")
    return project == inside or project.startswith(inside + "/")
