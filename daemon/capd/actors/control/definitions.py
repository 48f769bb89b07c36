"""Methods on tool definitions: list their changes, and take a person's decision on them."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from capd.actor_clients.definitions import DefinitionsClient
from capd.actors.control import documents
from capd.actors.control.actors import Actors
from capd.actors.control.callers import check_person
from capd.adapters.clients.peers import Peer
from capd_protos import definitions as messages
from capd_protos import socket as frames
from capd_protos.types import ServerIdentity, ToolName

STATUS_TIMEOUT = 1.0
READ_TIMEOUT = 30.0
"""Seconds for reading the saved definitions of every server and comparing all of them."""


class DefinitionMethods:
    """The control methods that list definitions and record a person's decisions on them."""

    def __init__(self, actors: Actors) -> None:
        self._client = actors.definitions
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "definitions": self._definitions
        }
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "trust_definitions": self._decide
        }
        """The methods that need to know which process calls."""

    async def _definitions(self, params: frames.DefinitionsParams) -> dict[str, Any]:
        request = messages.ListDefinitions(
            params.server, with_differences=params.differences, with_flags=params.flags
        )
        reply = await self._client.describe(request, timeout=READ_TIMEOUT)
        return {
            "schema": documents.SCHEMA,
            "mode": reply.mode,
            "servers": msgspec.to_builtins(reply.servers),
            "problems": reply.problems,
        }

    async def _decide(self, params: frames.TrustDefinitionsParams, peer: Peer) -> dict[str, Any]:
        await check_person("trust_definitions", peer)
        digests = {ToolName(tool): digest for tool, digest in params.digests.items()}
        request = messages.DecideDefinitions(
            ServerIdentity(params.identity), digests, params.accept
        )
        reply = await self._client.decide(request)
        return {
            "schema": documents.SCHEMA,
            "decided": reply.decided,
            "stale": reply.stale,
            "problem": reply.problem,
        }


async def summary(client: DefinitionsClient) -> dict[str, Any]:
    """Return the part of the status that is about tool definitions.

    Raises:
        ActorUnavailableError: the definitions actor does not answer in time.
    """
    reply = await client.describe(messages.ListDefinitions(), timeout=STATUS_TIMEOUT)
    counts = Counter(change.kind for server in reply.servers for change in server.changes)
    withheld = {
        str(server.name): sum(change.is_withheld for change in server.changes)
        for server in reply.servers
    }
    return {
        "mode": reply.mode,
        "trusted": sum(server.tools for server in reply.servers),
        **{kind: counts[kind] for kind in ("changed", "added", "removed")},
        "withheld": sum(withheld.values()),
        "servers": sorted({str(server.name) for server in reply.servers if server.changes}),
        "withheld_of": sorted(name for name, count in withheld.items() if count),
        "lost": sorted(str(server.name) for server in reply.servers if server.is_lost),
        "problems": reply.problems,
    }
