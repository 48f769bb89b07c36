"""Decides when two definitions are the same server, and when two sessions may share an instance.

A server's identity covers everything that makes it behave as it does; its name is not part
of it, so one name with two definitions is two servers, never silently shared
(docs/design/catalog.md). An instance is shared within its scope only, and never across different
secrets (docs/design/hostile-servers.md).
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
    """Two leases with equal keys share one instance."""

    identity: ServerIdentity
    name: ServerName = field(compare=False)
    """The name that the first holder uses; another name for the same server means the same
    instance."""
    scope: str
    """The project's path, the session's key, or empty for a shared instance; for sessions over a
    bridge, the bridge."""
    credentials: str
    """Keyed digest of the secrets that it gets; empty if there are none."""
    account: str = ""
    """The login that it uses at a server by URL; empty for the usual one."""
    sandbox_request: SandboxRequest = _USUAL
    """Its sandbox. The user may set it by name, so two names of one server may have different ones.
    """


def server_identity(server: ServerSpec) -> ServerIdentity:
    """Return the identity of `server`, 16 hex digits."""
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
        # A project's server is never shared with other projects, even if all else is equal.
        *([f"project {server.project}"] if server.project else []),
    )
    return ServerIdentity(hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:16])


def instance_key(
    server: ServerSpec,
    project: str,
    session: SessionKey,
    values: Mapping[str, str],
    pepper: bytes,
    *,
    scope: str = "",
    sandbox_request: SandboxRequest = _USUAL,
    bridge: str = "",
    account: str = "",
) -> InstanceKey:
    """Return the key under which `session` finds or creates its instance of `server`.

    `scope` is given if it differs from the definition's. `values` are the secrets by key, `pepper`
    a random key of this daemon's run: equal secrets have equal digests, and a digest reveals
    nothing about them. A session over a `bridge` shares nothing with local ones, nor with those of
    another bridge.
    """
    # A folder in the definition makes what is shared a thing of its project
    # (docs/design/catalog.md).
    shared_by = project if has_folder_placeholder(server) else ""
    far = f"bridge {bridge}" if bridge else ""
    sharers = {"shared": shared_by or far, "project": project or far, "session": session}
    keys = wanted_keys(server)
    credentials = ""
    if keys:
        pairs = msgspec.json.encode([(key, values.get(key, "")) for key in keys])
        credentials = hashlib.blake2b(pairs, key=pepper, digest_size=8).hexdigest()
    return InstanceKey(
        server_identity(server),
        server.name,
        sharers[scope or server.scope],
        credentials,
        account,
        sandbox_request,
    )
