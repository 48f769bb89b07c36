"""A project's own capabilities: its `.capd` folder, read as a tap that starts nothing by itself.

Its servers belong to the project alone: they are bound to its path, shared only within it, and used
in a session only while a person trusts them. The tap adds capabilities and replaces none: it comes
after the user's taps and the starter tap, which comes with capd.
"""

from collections.abc import Collection
from dataclasses import replace

import msgspec

from capd.core.taps.catalog import Tap
from capd.core.taps.tap_format import CapabilityRead
from capd.core.trust.startable import Startable
from capd_protos.types import Finding, ServerName, ServerSpec, TapName

FOLDER = ".capd"
PREFIX = "project:"
MEMORIES = ServerName(f"{FOLDER}/memories")
"""The entry for a project's memories in an agreement: no server can have this name."""
MEMORY_TRANSPORT = "memories"
"""The transport of the entry `MEMORIES`. The entry starts no server; its texts go to models."""
LAUNCHERS = ServerName(f"{FOLDER}/launchers")
"""The entry for the files that launchers read: no server can have this name."""
MODULES = ServerName(f"{FOLDER}/modules")
"""The entry for the modules that `python -m` would import: no server can have this name."""
READ_BY_LAUNCHERS = "launchers"
"""The transport of the entries `LAUNCHERS` and `MODULES`, and of those for servers of the user's
own that are files of the project. The entries start nothing themselves."""
MOST_CAPABILITIES = 256
MOST_SERVERS = 64
"""The most servers of a project: all files that each server names are checked repeatedly."""

_NO_SCRIPTS = (
    "what it requires is left out: scripts of a project are never run; name what it needs in words"
)
_NO_SKILLS = "skills of a project are not served"


def own_server(name: ServerName) -> ServerName:
    """Return the name of the entry for a user's own server whose program is a file of the project.

    No server can have this name.
    """
    return ServerName(f"{FOLDER}/yours/{name}")


def tap_name(project: str) -> TapName:
    """Return the tap name of a project's capabilities; no tap of the user's can have that name."""
    return TapName(f"{PREFIX}{project}")


def project_of(tap: str) -> str:
    """Return the path of the project that a tap belongs to; empty if it is not a project's tap."""
    return tap.removeprefix(PREFIX) if tap.startswith(PREFIX) else ""


def bind_servers(tap: Tap, project: str) -> Tap:
    """Return a project's tap with its servers bound to the project's real path.

    So they are used only in sessions of that project.
    """
    findings = list(tap.tap_findings)
    if tap.skill_reads:
        findings.append(Finding("skills", 0, _NO_SKILLS, "warning"))
    return replace(
        tap,
        reads=tuple(_bound_read(read, project) for read in tap.reads),
        scripts={},
        skill_reads=(),
        tap_findings=tuple(findings),
    )


def servers_of(tap: Tap) -> list[ServerSpec]:
    """Return every server of a tap, each definition once."""
    found: dict[bytes, ServerSpec] = {}
    for capability in tap.capabilities:
        for server in capability.servers:
            found.setdefault(msgspec.json.encode(server, order="sorted"), server)
    return list(found.values())


def memories_of(tap: Tap) -> Startable | None:
    """Return a project's memory files as one item for a person to trust; None if it has none."""
    files = {f"{FOLDER}/{read.path}": read.revision for read in tap.memory_reads if read.memory}
    if not files:
        return None
    project = project_of(tap.name)
    server = ServerSpec(MEMORIES, MEMORY_TRANSPORT, tap.name, project=project)
    return Startable(server, project, files)


def trusted_part(tap: Tap, trusted: Collection[ServerSpec]) -> Tap:
    """Return a project's tap with only the capabilities whose servers are all trusted.

    Its memories are included if their present content is trusted.
    """
    project = project_of(tap.name)
    reason = f"untrusted: see what it would start with capd trust {project}"
    reads = [
        replace(read, capability=None, reason=reason)
        if read.capability and any(each not in trusted for each in read.capability.servers)
        else read
        for read in tap.reads
    ]
    is_told = any(each.name == MEMORIES for each in trusted)
    return replace(tap, reads=tuple(reads), memory_reads=tap.memory_reads if is_told else ())


def _bound_read(read: CapabilityRead, project: str) -> CapabilityRead:
    capability = read.capability
    if capability is None:
        return read
    findings = list(read.findings)
    if capability.requires:
        findings.append(Finding(f"capabilities/{read.name}", 0, _NO_SCRIPTS))
    servers = tuple(_bound(server, project) for server in capability.servers)
    own = msgspec.structs.replace(capability, servers=servers, requires=())
    return replace(read, capability=own, findings=tuple(findings), is_binding=False)


def _bound(server: ServerSpec, project: str) -> ServerSpec:
    scope = "project" if server.scope == "shared" else server.scope
    return msgspec.structs.replace(server, project=project, scope=scope, is_scope_fixed=True)
