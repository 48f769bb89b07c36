"""Tasks of the extension `io.modelcontextprotocol/tasks` (SEP-2663), and their servers.

A server may answer `tools/call` with a task instead of a result. The client then asks for the task
by its id, and only the server that gave the id knows it. Ids are passed on unchanged, so two
servers may use the same id. Then neither is asked, because the answer could belong to the other.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from capd.core.protocol.generations import Members, joined, members_or_none
from capd.core.results.large_results import LargeResult, Result
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import ClientFacts, ServerIdentity

EXTENSION = "io.modelcontextprotocol/tasks"
TASK_METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Requests that name a task by `params.taskId`."""
CHANGED = "notifications/tasks"
"""The notification with the whole state of a task, for clients that listen for it
(`subscriptions/listen`)."""
MOST_TASKS = 1000
"""The most tasks that a session remembers. The oldest are forgotten first."""
MOST_ID = 512
"""The most characters of a task's id."""
_MOST_BYTES = 64 * 1024
"""A longer result is not searched for a task: a result with a task has only a status and times."""
_MARK = b"taskId"
_EXTENSIONS = "extensions"
REQUIRED: Mapping[str, Any] = {"requiredCapabilities": {_EXTENSIONS: {EXTENSION: {}}}}
"""The data of the error for a client that listens for tasks without the extension."""


class _Task(msgspec.Struct):
    resultType: Literal["task"]  # noqa: N815 - the protocol's names
    taskId: str  # noqa: N815


_TASK: JsonCodec[_Task] = JsonCodec(_Task)


def task_of(result: Result) -> str:
    """Return the id of the task in a result; empty if it has none, or is too large to have one."""
    if isinstance(result, LargeResult) or len(result) > _MOST_BYTES or _MARK not in result:
        return ""
    try:
        found = _TASK.decode(result)
    except MalformedError:
        return ""
    return found.taskId if len(found.taskId) <= MOST_ID else ""


def without_tasks(client: ClientFacts) -> ClientFacts:
    """Return a client's facts without the tasks extension: a server then answers with a result.

    capd uses it for calls that it makes itself: it needs their results immediately.
    """
    if EXTENSION.encode() not in client.capabilities:
        return client
    capabilities = members_or_none(client.capabilities)
    extensions: Members = members_or_none(bytes(capabilities.get(_EXTENSIONS, b"")))
    extensions.pop(EXTENSION, None)
    capabilities[_EXTENSIONS] = msgspec.Raw(joined(extensions))
    return msgspec.structs.replace(client, capabilities=joined(capabilities))


def has_tasks(client: ClientFacts) -> bool:
    """Tell whether a client has declared the MCP extension for tasks."""
    capabilities = members_or_none(client.capabilities)
    return EXTENSION in members_or_none(bytes(capabilities.get(_EXTENSIONS, b"")))


def with_tasks(client: ClientFacts) -> ClientFacts:
    """Return a client's facts with the tasks extension, for the stream of task notifications."""
    capabilities = members_or_none(client.capabilities)
    extensions: Members = members_or_none(bytes(capabilities.get(_EXTENSIONS, b"")))
    extensions.setdefault(EXTENSION, msgspec.Raw(b"{}"))
    capabilities[_EXTENSIONS] = msgspec.Raw(joined(extensions))
    return msgspec.structs.replace(client, capabilities=joined(capabilities))


class TaskOwners:
    """The servers that gave tasks of one session their ids. Two servers may give the same id."""

    def __init__(self) -> None:
        self._servers: dict[str, list[ServerIdentity]] = {}

    def add(self, task: str, server: ServerIdentity) -> None:
        """Note that `server` has given a task this id."""
        known = self._servers.pop(task, [])
        self._servers[task] = known if server in known else [*known, server]
        while len(self._servers) > MOST_TASKS:
            del self._servers[next(iter(self._servers))]

    def of(self, task: str) -> list[ServerIdentity]:
        """Return the servers that gave this id: none, one, or several if the id is ambiguous."""
        return list(self._servers.get(task, ()))

    def saved(self) -> dict[str, list[ServerIdentity]]:
        """Return the servers by task id, in the form in which a session is saved."""
        return {task: list(servers) for task, servers in self._servers.items()}

    def restore(self, saved: Mapping[str, Iterable[ServerIdentity]]) -> None:
        """Restore the tasks of an earlier session with the same key."""
        for task, servers in saved.items():
            for server in servers:
                self.add(task, server)
