"""Methods on memories: list them, and add or remove the user's own.

A memory is checked before it is written. A process that capd started may not write any, because a
server could otherwise choose the texts that models get.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import trio

from capd.actors.control import documents
from capd.actors.control.actors import ASK_TIMEOUT, Actors, MethodError
from capd.actors.control.callers import reason
from capd.adapters.clients.peers import Peer
from capd.adapters.memory_store import MemoryStore, NotStoredError
from capd.core.memories.memory_format import OWN, written_memory
from capd.core.memories.memory_names import made_name
from capd.core.memories.mistakes import mistake_of
from capd.core.memories.subjects import Subjects
from capd.runtime.bus import ActorUnavailableError
from capd_protos import curator
from capd_protos import socket as frames
from capd_protos.types import CapabilityId, Finding, ServerName

COUNT_TIMEOUT = 30.0
"""Seconds for counting the tokens of all memories, in a process that is started for it."""
DESCENDS = "a process that capd started may not change memories"


class MemoryMethods:
    """The methods on memories. The methods that change a memory check the calling process first."""

    def __init__(self, actors: Actors, store: MemoryStore) -> None:
        self._actors = actors
        self._store = store
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "memories": self._memories,
            "memory_read": self._read,
            "memory_suggest": self._suggest,
        }
        self.personal: dict[str, Callable[[Any, Peer], Awaitable[Any]]] = {
            "memory_add": self._add,
            "memory_write": self._write,
            "memory_forget": self._forget,
            "memory_accept": self._accept,
        }

    # Methods that read

    async def _memories(self, params: frames.MemoriesParams) -> dict[str, Any]:
        described = await self._described(params.project)
        listed = await self._actors.registry.memories(params.project)
        return {
            "schema": documents.SCHEMA,
            "folder": str(self._store.folder),
            "memories": [_entry(each) for each in described.memories],
            "findings": msgspec.to_builtins(
                [*listed.findings, *_unmatched(described, await self._subjects(params.project))]
            ),
        }

    async def _read(self, params: frames.MemoryParams) -> dict[str, Any]:
        file, text = await self._stored(self._store.text, params.name)
        return {"schema": documents.SCHEMA, "name": params.name, "file": str(file), "text": text}

    async def _suggest(self, _: frames.NoParams) -> dict[str, Any]:
        lessons = await self._lessons()
        return {
            "schema": documents.SCHEMA,
            "suggestions": [
                {
                    "number": number,
                    "tool": f"{each.server}:{each.tool}",
                    "content": each.content,
                    "arguments": _json(each.schema),
                    "count": each.count,
                }
                for number, each in enumerate(lessons, 1)
            ],
        }

    # Methods that write

    async def _add(self, params: frames.MemoryAddParams, peer: Peer) -> dict[str, Any]:
        await _check_ancestry(peer)
        subjects = await self._subjects()
        capability, tool = subjects.capability(params.capability), subjects.tool(params.tool)
        schema = mistake_of(params.patterns) if params.patterns else params.schema
        fields = {
            "kind": params.kind,
            "content": params.content,
            "confidence": params.confidence,
            "priority": params.priority,
            "capability": capability,
            "tool": tool,
            "arguments": schema,
            "refuses": params.refuses,
            "learned_from": params.learned_from,
        }
        added = await self._added(params.name, fields)
        return {**added, "warning": subjects.unmatched(capability, tool)}

    async def _write(self, params: frames.MemoryWriteParams, peer: Peer) -> dict[str, Any]:
        await _check_ancestry(peer)
        file = await self._stored(self._store.replace, params.name, params.text)
        await self._reload()
        return _done(params.name, file)

    async def _forget(self, params: frames.MemoryParams, peer: Peer) -> dict[str, Any]:
        await _check_ancestry(peer)
        file = await self._stored(self._store.forget, params.name)
        await self._reload()
        return _done(params.name, file)

    async def _accept(self, params: frames.MemoryAcceptParams, peer: Peer) -> dict[str, Any]:
        await _check_ancestry(peer)
        lessons = [each for each in await self._lessons() if each.content == params.content]
        if not lessons:
            text = "there is no such suggestion any more: capd memory suggest"
            raise MethodError(frames.NOT_FOUND, text)
        lesson = lessons[0]
        failed = f"{lesson.count} call{'s' if lesson.count > 1 else ''}"
        fields = {
            "kind": "corrective",
            "content": lesson.content,
            "confidence": round(lesson.count / (lesson.count + 1), 2),
            "tool": f"{lesson.server}:{lesson.tool}",
            "arguments": _json(lesson.schema),
            "refuses": params.refuses,
            "learned_from": f"{failed} that failed and worked with other arguments",
        }
        return await self._added(params.name, fields)

    # Used by the methods above

    async def _added(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        taken = await trio.to_thread.run_sync(self._store.names)
        given = name or made_name(str(fields["content"]), taken)
        file = await self._stored(self._store.add, given, written_memory(fields))
        await self._reload()
        return _done(given, file)

    async def _subjects(self, project: str = "") -> Subjects:
        """Return the capabilities and servers that memories may be about, of all known projects."""
        listed = await self._actors.registry.capabilities(project, all_projects=True)
        return Subjects(
            (CapabilityId(each.tap, each.name) for each in listed),
            (ServerName(server) for each in listed for server in each.servers),
        )

    async def _described(self, project: str = "") -> curator.MemoriesDescribed:
        return await self._actors.curator.memories(project, timeout=COUNT_TIMEOUT)

    async def _lessons(self) -> list[curator.LessonEntry]:
        """Return the lessons that are not memories yet.

        A lesson is the difference between a call that failed and the next call of the same tool
        that succeeded.
        """
        described = await self._described()
        known = {(each.memory.tool, each.memory.arguments) for each in described.memories}
        known |= {(each.memory.tool, each.memory.content.encode()) for each in described.memories}
        return [
            each
            for each in described.lessons
            if (f"{each.server}:{each.tool}", each.schema or each.content.encode()) not in known
        ]

    async def _reload(self) -> None:
        """Have every session load the memories again; give up if that takes too long."""
        with suppress(ActorUnavailableError):
            await self._actors.registry.reload(timeout=ASK_TIMEOUT)
            await self._described()

    async def _stored(self, act: Callable[..., Any], *arguments: str) -> Any:
        try:
            return await trio.to_thread.run_sync(partial(act, *arguments))
        except NotStoredError as error:
            raise MethodError(frames.REFUSED, str(error)) from None


async def _check_ancestry(peer: Peer) -> None:
    verdict = await peer.verdict()
    if verdict != "person":
        raise MethodError(frames.REFUSED, reason(verdict, DESCENDS))


def _entry(entry: curator.MemoryEntry) -> dict[str, Any]:
    fields = msgspec.structs.asdict(entry.memory)
    counts = {"tokens": entry.tokens, "told": entry.told, "refused": entry.refused}
    fields["arguments"] = _json(entry.memory.arguments)
    return {**fields, **counts, "worked": entry.worked}


def _unmatched(described: curator.MemoriesDescribed, subjects: Subjects) -> Iterator[Finding]:
    """Yield a finding for each memory of the user that fits no installed capability or tool.

    Memories of taps are left out: they may be for capabilities that only others have installed.
    """
    for memory in (each.memory for each in described.memories):
        reason = subjects.unmatched(memory.capability, memory.tool) if memory.tap == OWN else ""
        if reason:
            yield Finding(memory.file or memory.name, 0, reason, "warning")


def _json(schema: bytes) -> Any:
    return msgspec.json.decode(schema) if schema else None


def _done(name: str, file: Path) -> dict[str, Any]:
    return {"schema": documents.SCHEMA, "name": name, "file": str(file)}
