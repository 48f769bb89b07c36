"""Applies a session's policy to prompts, resources and whole capabilities.

Capabilities may give the same server different names. A rule that denies something under any of
these names denies it.
"""

from collections.abc import Mapping, Sequence

import msgspec

from capd.core.servers.identity import server_identity
from capd.core.servers.placeholders import wanted_keys
from capd.core.sessions.policy import Policy
from capd.core.sessions.session import ServerLease, SessionState, kept_by
from capd.core.tools.tool_search import Restriction
from capd_protos.types import CapabilitySpec, ServerIdentity, ServerName


def prompt_restriction(
    state: SessionState, server: ServerIdentity, name: str
) -> Restriction | None:
    """Return why a prompt of a leased server is denied; None if it is permitted."""
    restrictions = (state.policy.restriction(each, name) for each in _names(state, server))
    return next((restriction for restriction in restrictions if restriction is not None), None)


def resource_restriction(
    state: SessionState, server: ServerIdentity, uri: str
) -> Restriction | None:
    """Return why a resource or template of a leased server is denied; None if it is permitted."""
    restrictions = (state.policy.restrict_resource(each, uri) for each in _names(state, server))
    return next((restriction for restriction in restrictions if restriction is not None), None)


def denied_among(state: SessionState, uris: Mapping[str, ServerIdentity]) -> list[str]:
    """Return those of the resources `uris` that policy denies; `uris` maps each to its server."""
    return [
        uri for uri, server in uris.items() if resource_restriction(state, server, uri) is not None
    ]


def without_denied_servers(capability: CapabilitySpec, policy: Policy) -> CapabilitySpec:
    """Return a capability without the servers of which policy denies every tool.

    Such a server is not started, and the secrets that only it needs are not asked for.
    """
    if not policy.tables:
        return capability
    left = tuple(each for each in capability.servers if policy.restrict_server(each.name) is None)
    if left == capability.servers:
        return capability
    keys = dict.fromkeys(key for server in left for key in wanted_keys(server))
    return msgspec.structs.replace(capability, servers=left, wanted_keys=tuple(keys))


def capability_restriction(
    capability: CapabilitySpec, servers: Sequence[ServerLease], policy: Policy
) -> Restriction | None:
    """Return why policy leaves no tool of a capability; None if a tool is left.

    `servers` are the leases on those of its servers that have listed their tools. Any other server
    counts only if policy denies it as a whole. The result is None, too, if no tool is left for
    another reason, such as the capability's filter.
    """
    if not policy.tables:
        return None
    restrictions = [policy.restrict_server(spec.name) for spec in capability.servers]
    found = [restriction for restriction in restrictions if restriction is not None]
    for lease in servers:
        spec, tools = kept_by(capability, lease)
        for tool in tools:
            restriction = policy.restriction(spec.name, tool) or policy.restriction(
                lease.spec.name, tool
            )
            if restriction is None:
                return None
            found.append(restriction)
    return found[0] if found else None


def _names(state: SessionState, server: ServerIdentity) -> dict[ServerName, None]:
    """Return every name that the lease or an active capability gives a server."""
    lease = state.lease_on(server)
    if lease is None or not state.policy.tables:
        return {}
    names = {lease.spec.name: None}
    for activation in state.active.activations:
        if server in activation.servers:
            specs = state.spec(activation.id).servers
            names.update({s.name: None for s in specs if server_identity(s) == server})
    return names
