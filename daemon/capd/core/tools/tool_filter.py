"""Filters the tools of a server by a list of patterns (docs/design/catalog.md).

Without a list, or with an empty one, all tools are kept. The pattern `S:rest` applies only to the
server S, a pattern without a colon to every server. Patterns are case-sensitive globs of the shell.
If a list has patterns and none applies to a server, none of its tools is kept.
"""

from collections.abc import Iterable, Sequence

from capd.core.globs import matches
from capd_protos.types import ServerName, ToolName


def patterns_for(server: ServerName, patterns: Sequence[str] | None) -> list[str] | None:
    """Return the globs of a capability's filter that apply to `server`; None without a filter."""
    if not patterns:
        return None
    globs: list[str] = []
    for pattern in patterns:
        scope, colon, rest = pattern.partition(":")
        if not colon:
            globs.append(pattern)
        elif scope == server:
            globs.append(rest)
    return globs


def kept_tools(
    server: ServerName, tools: Iterable[ToolName], *filters: Sequence[str] | None
) -> list[ToolName]:
    """Return the tools of `server` that pass every filter, in the server's order."""
    applied = [patterns_for(server, patterns) for patterns in filters]
    return [
        tool
        for tool in tools
        if all(globs is None or any(matches(tool, glob) for glob in globs) for globs in applied)
    ]


def is_named(pattern: str, server: str, tool: str, wire_name: str) -> bool:
    """Tell whether a user's pattern matches a tool.

    It is a glob of `server:tool`, or of wire names, the names under which clients know tools.
    """
    scope, colon, rest = pattern.partition(":")
    if not colon:
        # In a wire name, dashes of the server and the tool are underscores.
        return matches(wire_name, pattern) or matches(f"{server}__{tool}", pattern)
    return matches(server, scope) and matches(tool, rest)
