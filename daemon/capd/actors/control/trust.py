"""Methods on trust in projects: show it, grant it, revoke it.

No process that capd started may call them. To grant or revoke, the calling process must also have a
terminal. So no server, and no tool that a model calls, can grant trust (docs/design/trust.md). This
does not protect against code that runs as the same user outside of capd, because such code can
create a terminal.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from capd.actors.control import documents
from capd.actors.control.actors import ASK_TIMEOUT, Actors, MethodError, accepted
from capd.actors.control.callers import check_ancestry, check_person
from capd.adapters.clients.peers import Peer
from capd_protos import registry
from capd_protos import socket as frames

TRUST_TIMEOUT = ASK_TIMEOUT * 2
"""Seconds; a project's files are read for each answer."""


class TrustMethods:
    """The control methods for trust in projects. Each checks its caller."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "trust": self._show,
            "trust_list": self._list,
            "trust_grant": self._grant,
            "trust_revoke": self._revoke,
        }

    async def _show(self, params: frames.TrustParams, peer: Peer) -> dict[str, Any]:
        await check_ancestry("trust", peer)
        project = _absolute(params.project)
        return _shown(await self._actors.registry.startables(project, timeout=TRUST_TIMEOUT))

    async def _list(self, _: frames.NoParams, peer: Peer) -> dict[str, Any]:
        await check_ancestry("trust_list", peer)
        return _listed(await self._actors.registry.trusted(timeout=TRUST_TIMEOUT))

    async def _grant(self, params: frames.GrantParams, peer: Peer) -> dict[str, Any]:
        await check_person("trust_grant", peer)
        granted = await self._actors.registry.grant_trust(
            _absolute(params.project), params.digests, timeout=TRUST_TIMEOUT
        )
        shown = accepted(granted)
        await self._actors.supervisor.trust_changed(shown.project)
        return _shown(shown)

    async def _revoke(self, params: frames.TrustParams, peer: Peer) -> dict[str, Any]:
        await check_person("trust_revoke", peer)
        reply = accepted(
            await self._actors.registry.revoke_trust(
                _absolute(params.project), timeout=TRUST_TIMEOUT
            )
        )
        # End the project's servers first. Starts that sessions wait for then fail too, so none of
        # them finishes afterwards.
        ended = await self._actors.supervisor.end_project(reply.revoked)
        await self._actors.curator.leave_project(reply.revoked)
        # Then restart the user's own servers that may have been started with the project's files.
        ended += await self._actors.supervisor.trust_changed(reply.revoked)
        return {**_listed(reply), "ended": ended}


def _absolute(project: str) -> str:
    if not os.path.isabs(project):  # noqa: PTH117 - text, of which no path is made
        raise MethodError(frames.INVALID_PARAMS, f"{project[:100]!r} is not an absolute path")
    return project


def _shown(reply: registry.StartablesListed) -> dict[str, Any]:
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
        "image": server.container.image if server.container is not None else "",
        "cwd": server.project,
        "env": server.env,
        # All addresses: a person agrees to each of them.
        "url": " ".join((server.url, *server.further_urls)),
        "headers": server.headers,
        "scope": server.scope,
        "lazy": server.lazy,
        "wanted_keys": entry.wanted_keys,
        "files": entry.files,
        "changes": entry.changes,
        "warnings": entry.warnings,
        "problem": entry.problem,
    }


def _listed(reply: registry.TrustedListed) -> dict[str, Any]:
    return {
        "schema": documents.SCHEMA,
        "projects": [{"project": p.project, "servers": p.servers} for p in reply.projects],
        "problem": reply.problem,
    }
