"""Methods on what routing has learnt from use: show it, and forget it.

A process that capd started may not make routing forget, because an agent must not choose what
routing has learnt.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from capd.actors.control import documents
from capd.actors.control.actors import Actors
from capd.actors.control.callers import check_ancestry
from capd.adapters.clients.peers import Peer
from capd_protos import registry
from capd_protos import socket as frames
from capd_protos.types import LearntEntry


class LearningMethods:
    """The control methods that show and forget what routing has learnt."""

    def __init__(self, actors: Actors) -> None:
        self._actors = actors
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {"learning": self._learning}
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "learning_forget": self._forget
        }

    async def _learning(self, params: frames.LearningParams) -> dict[str, Any]:
        described = await self._actors.registry.learning(params.project)
        return {
            "schema": documents.SCHEMA,
            "on": described.is_on,
            "labels": described.labels,
            "shared": described.shared,
            "capabilities": [entry_document(each) for each in described.entries],
            "problem": described.problem,
        }

    async def _forget(self, params: frames.ForgetLearningParams, peer: Peer) -> dict[str, Any]:
        await check_ancestry("learning_forget", peer)
        request = registry.ForgetLearning(params.name, is_last=params.last)
        forgotten = await self._actors.registry.forget_learning(request)
        return {
            "schema": documents.SCHEMA,
            "forgotten": forgotten.labels,
            "capability": forgotten.capability or params.name,
        }


def entry_document(entry: LearntEntry) -> dict[str, Any]:
    """Return what routing has learnt about one capability."""
    return {
        "name": entry.capability,
        "offset": entry.offset,
        "project_offset": entry.project_offset,
        "enabled": entry.enabled,
        "disabled": entry.disabled,
        "called": entry.called,
        "since": entry.since,
        "last_at": entry.last_at,
    }
