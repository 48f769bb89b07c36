"""Finds filters and edits that do not fit a server's tools (docs/design/catalog.md).

A filter that matches nothing keeps no tool, so a misspelt filter takes a capability's tools away
without any error. A misspelt edit changes nothing. Both are compared with the tools that servers
listed when they last ran. The module also finds capabilities that a skill names and that do not
exist.
"""

from collections.abc import Mapping, Sequence

from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd.core.taps.edit_tables import KEY as EDITS
from capd.core.taps.tap_format import CapabilityFiles
from capd.core.taps.toml_folder import TomlFolder
from capd.core.tools.tool_edits import problems
from capd.core.tools.tool_filter import kept_tools, patterns_for
from capd_protos.types import (
    CapabilitySpec,
    Finding,
    ServerIdentity,
    ServerName,
    ServerSpec,
    ToolDefinition,
    ToolName,
)


def unknown_capabilities(tap: Tap, catalog: Catalog) -> tuple[Finding, ...]:
    """Return a finding for each capability that a skill of `tap` names and that is not usable."""
    findings = []
    for read in tap.skill_reads:
        if read.skill is None:
            continue
        for name, line in zip(read.skill.capabilities, read.lines, strict=True):
            found = catalog.find(name)
            if isinstance(found, Unknown):
                near = f" (near names: {', '.join(found.near)})" if found.near else ""
                reason = f"capability {name!r} cannot be switched on: {found.reason}{near}"
                findings.append(Finding(read.path, line, reason))
    return tuple(findings)


ToolNames = Mapping[ServerIdentity, Sequence[ToolName]]


ToolsOfServers = Mapping[ServerIdentity, Sequence[ToolDefinition]]


_SHOWN = 8


def unmatched_filters(
    files: CapabilityFiles, capability: CapabilitySpec, known: ToolNames
) -> tuple[Finding, ...]:
    """Return a finding for each filter of a capability that matches no tool, with its line.

    `known` has the names of the tools that each server listed last.
    """
    folder = TomlFolder(files.path, files.texts)
    file = f"{capability.provider}.toml"

    def add(reason: str, near: str) -> None:
        folder.add(file, reason, near=near, severity="warning")

    servers = [each for each in capability.servers if each.transport != "builtin"]
    for server in servers:
        listed = known.get(server_identity(server), ())
        for key, patterns in (("allowed_tools", capability.allowed_tools), ("tools", server.tools)):
            if patterns_for(server.name, patterns) == []:
                add(f"`{key}` speaks of no tool of server {server.name!r}: it has none", key)
            elif listed and not kept_tools(server.name, listed, patterns):
                add(f"`{key}` matches none of {_listed_text(server.name, listed)}", key)
    for pattern in _idle(capability.allowed_tools or (), servers, known):
        add(f"pattern {pattern!r} matches no tool of the servers that are known", f'"{pattern}"')
    return tuple(folder.findings)


def unapplied_edits(tap: Tap, known: ToolsOfServers) -> tuple[Finding, ...]:
    """Return a finding for each part of an edit that does not fit what its server lists."""
    found: dict[Finding, None] = {}
    for server in (server for each in tap.capabilities for server in each.servers):
        listed = known.get(server_identity(server))
        for edit in server.edits if listed is not None else ():
            for reason in problems(listed or (), edit):
                text = f'{EDITS}."{edit.server}:{edit.tool}": {reason}'
                found.setdefault(Finding(edit.file, 0, text, "warning"))
    return tuple(found)


def _idle(patterns: Sequence[str], servers: Sequence[ServerSpec], known: ToolNames) -> list[str]:
    """Return which of a capability's filter patterns match no tool of its servers.

    The result is empty if none of the patterns matches a tool, because that is another finding. It
    is also empty if the tools of a server are not known.
    """
    lists = {server.name: known.get(server_identity(server), ()) for server in servers}
    if not all(lists.values()) or not any(kept_tools(n, t, patterns) for n, t in lists.items()):
        return []
    return [
        pattern
        for pattern in patterns
        if not any(kept_tools(name, tools, [pattern]) for name, tools in lists.items())
    ]


def _listed_text(server: ServerName, listed: Sequence[ToolName]) -> str:
    shown = ", ".join(listed[:_SHOWN])
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return f"the {len(listed)} tools of server {server!r}: {shown}{more}"
