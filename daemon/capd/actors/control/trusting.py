"""Methods on what projects' files may start: seen by anybody of the user's, agreed to by a person.

An agreement takes a terminal, and a process that capd did not start: neither a server nor anything
that a model can call may agree for itself (docs/design/trust.md). Code that runs as the same user
outside of capd can have a terminal made; against that nothing here is a boundary.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control.callers import check_ancestry, check_person
from capd.actors.control.questions import (
    ASK_TIMEOUT,
    REGISTRY,
    REGISTRY_REPLIES,
    MethodError,
    Questions,
)
from capd.adapters.clients.peers import Peer
from capd.runtime.bus import Bus
from capd_protos import curator, registry, supervisor
from capd_protos import socket as frames


class Trusting:
    """What is asked of trust; each method hears which process asks."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ask = Questions(bus)
        self.methods: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "trust": self._show,
            "trust_list": self._list,
            "trust_grant": self._grant,
            "trust_revoke": self._revoke,
        }

    async def _show(self, params: frames.TrustParams, peer: Peer) -> dict[str, Any]:
        await check_ancestry("trust", peer)
        return _shown(await self._asked(registry.ListStartables(_absolute(params.project))))

    async def _list(self, _: frames.NoParams, peer: Peer) -> dict[str, Any]:
        await check_ancestry("trust_list", peer)
        return _listed(await self._asked(registry.ListTrusted()))

    async def _grant(self, params: frames.GrantParams, peer: Peer) -> dict[str, Any]:
        await check_person("trust_grant", peer)
        request = registry.GrantTrust(_absolute(params.project), params.digests)
        return _shown(await self._asked(request))

    async def _revoke(self, params: frames.TrustParams, peer: Peer) -> dict[str, Any]:
        await check_person("trust_revoke", peer)
        reply = await self._asked(registry.RevokeTrust(_absolute(params.project)))
        listed = _listed(reply)
        assert isinstance(reply, registry.TrustedListed)
        # Servers first: a session that still waits for one to start lets go of nothing meanwhile.
        ended = await self._ask.supervisor(
            supervisor.EndProject(reply.revoked), supervisor.ProjectEnded
        )
        await self._ask.curator(curator.LeaveProject(reply.revoked), curator.ProjectLeft)
        return {**listed, "ended": ended.servers}

    async def _asked(self, request: msgspec.Struct) -> registry.Reply:
        reply = await self._bus.ask(REGISTRY, request, REGISTRY_REPLIES, ASK_TIMEOUT * 2)
        if isinstance(reply, registry.RegistryRefused):
            raise MethodError(frames.REFUSED, reply.message)
        return reply


def _absolute(project: str) -> str:
    if not os.path.isabs(project):  # noqa: PTH117 - text, of which no path is made
        raise MethodError(frames.INVALID_PARAMS, f"{project[:100]!r} is no absolute path")
    return project


def _shown(reply: registry.Reply) -> dict[str, Any]:
    assert isinstance(reply, registry.StartablesListed)
    return {
        "schema": documents.SCHEMA,
        "project": reply.project,
        "servers": [_server(each) for each in reply.servers],
        "findings": [msgspec.to_builtins(finding) for finding in reply.findings],
        "error": reply.error,
    }


def _server(entry: registry.StartableEntry) -> dict[str, Any]:
    server = entry.server
    return {
        "name": server.name,
        "state": entry.state,
        "digest": entry.digest,
        "capabilities": entry.capabilities,
        "transport": server.transport,
        "command": [server.command, *server.args] if server.command else [],
        "cwd": server.project,
        "env": server.env,
        "url": server.url,
        "headers": server.headers,
        "scope": server.scope,
        "lazy": server.lazy,
        "wanted_keys": entry.wanted_keys,
        "files": entry.files,
        "changes": entry.changes,
        "warnings": entry.warnings,
        "problem": entry.problem,
    }


def _listed(reply: registry.Reply) -> dict[str, Any]:
    assert isinstance(reply, registry.TrustedListed)
    return {
        "schema": documents.SCHEMA,
        "projects": [{"project": p.project, "servers": p.servers} for p in reply.projects],
        "problem": reply.problem,
    }
