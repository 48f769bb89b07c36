"""Which tools of a server a list of patterns keeps (docs/design/catalog.md).

No list, or an empty one, keeps all tools. `S:rest` applies to server S only, a pattern without a
colon to every server. Globs are the shell's, case-sensitive. If no pattern applies to this server,
no tool is kept: the filter fails closed.
"""

from collections.abc import Iterable, Sequence

from capd.core.globs import matches
from capd_protos.types import ServerName, ToolName


def patterns_for(server: ServerName, patterns: Sequence[str] | None) -> list[str] | None:
    """Return the globs that apply to `server`; None if there is no filter at all."""
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
    """Tell whether a user's pattern matches a tool: `server:tool`, or a wire name, with globs."""
    scope, colon, rest = pattern.partition(":")
    if not colon:
        # In a wire name, dashes of the server and the tool are underscores.
        return matches(wire_name, pattern) or matches(f"{server}__{tool}", pattern)
    return matches(server, scope) and matches(tool, rest)
