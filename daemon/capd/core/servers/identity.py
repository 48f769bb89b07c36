"""Decides when two definitions are the same server, and when two sessions may share an instance.

A server's identity is a hash of everything in its definition that changes its behaviour. The name
is not part of the identity: two definitions that differ only in the name are one server
(docs/design/catalog.md). An instance is a running connection to a server. Sessions share an
instance only within its scope, and only if they use the same secrets
(docs/design/hostile-servers.md).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from capd.core.servers.placeholders import has_folder_placeholder, wanted_keys
from capd.core.servers.sandbox import SandboxRequest
from capd_protos.types import ServerIdentity, ServerName, ServerSpec, SessionKey

_USUAL = SandboxRequest()
SCOPES = ("shared", "project", "session")


@dataclass(frozen=True, slots=True)
class InstanceKey:
    """The facts that decide which instance a lease uses: leases with equal keys share one."""

    identity: ServerIdentity
    name: ServerName = field(compare=False)
    """The server's name for the first session that leased the instance. It is not compared: another
    name for the same server means the same instance."""
    scope: str
    """The value that all sharing sessions have in common: a project's path, a session's key, a
    bridge, or empty for an instance that all local sessions share."""
    credentials: str
    """Keyed digest of the secrets that the instance gets; empty if it gets none."""
    account: str = ""
    """Which of several logins the instance uses at a server by URL; empty for the usual one."""
    sandbox_request: SandboxRequest = _USUAL
    """The sandbox of the instance. The user sets it by the server's name, so one server with two
    names may have two."""


def server_identity(server: ServerSpec) -> ServerIdentity:
    """Return the hash that identifies a server by its definition, as 16 hex digits."""
    parts = (
        server.transport,
        server.command,
        server.args,
        server.url,
        sorted(server.env.items()),
        sorted(server.headers.items()),
        server.scope,
        # Added only if set, so that other servers keep the identity of their cached lists.
        *([server.oauth.id, server.oauth.secret] if server.oauth is not None else []),
        *([f"sandbox {server.sandbox}"] if server.sandbox else []),
        *([msgspec.structs.astuple(server.container)] if server.container is not None else []),
        *([f"where {server.where}"] if server.where != "host" else []),
        *([["urls", *server.further_urls]] if server.further_urls else []),
        # A project's server is never shared with other projects, even if all else is equal.
        *([f"project {server.project}"] if server.project else []),
    )
    return ServerIdentity(hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16])


def instance_keys(
    server: ServerSpec,
    project: str,
    session: SessionKey,
    values: Mapping[str, str],
    pepper: bytes,
    *,
    sandbox_request: SandboxRequest = _USUAL,
    bridge: str = "",
    far_folder: str = "",
    account: str = "",
) -> dict[str, InstanceKey]:
    """Return the keys of the instances of `server` that `session` could use, by scope.

    `project` is the session's project. `values` are the secrets by name. `pepper` is a random key
    of this run of the daemon, so that a digest of secrets reveals nothing about them. A session
    over a `bridge` shares no instance with local sessions, or with those of another bridge. An
    instance on the far side is also limited to one `far_folder`, the session's folder there.
    `account` is one of several logins at a server by URL; empty for the usual one.
    """
    # A definition with `{{PROJECT}}` or `{{CWD}}` gives each project another command line, so it
    # is shared within one project only (docs/design/catalog.md).
    shared_by = project if has_folder_placeholder(server) else ""
    far = f"bridge {bridge}" if bridge else ""
    sharers = {"shared": shared_by or far, "project": project or far, "session": session}
    if bridge and server.where == "project":
        there = f"{far} {far_folder}"
        sharers = {"shared": there, "project": there, "session": f"{there} {session}"}
    keys = wanted_keys(server)
    credentials = ""
    if keys:
        pairs = msgspec.json.encode([(key, values.get(key, "")) for key in keys])
        credentials = hashlib.blake2b(pairs, key=pepper, digest_size=8).hexdigest()
    identity = server_identity(server)
    return {
        scope: InstanceKey(identity, server.name, sharer, credentials, account, sandbox_request)
        for scope, sharer in sharers.items()
    }
