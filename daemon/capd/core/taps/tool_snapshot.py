"""The tools that a tap records for its servers: `tools.json`, written by `capd tap build`.

    {"format": 1, "servers": {"9c31...": {"name": "git", "version": "2026.10.19", "tools": [...]}}}

With this file a server's tools can be found, and described to a model, before the server has ever
run. A list is for one server identity, a hash of the server's definition (command, arguments,
environment). So it is not used once the definition has changed. The list that the server itself
gives replaces it.

Strangers write such files, so each tool passes the same checks as one that a server lists.
"""

from collections.abc import Iterable, Mapping

import msgspec

from capd.core.tools.tool_intake import ToolIntake
from capd_protos.codec import JsonCodec, MalformedError
from capd_protos.types import Finding, ServerIdentity, ServerName, ToolDefinition

FILE = "tools.json"
FORMAT = 1
MOST_BYTES = 4 << 20
MOST_SERVERS = 500


class ListedServer(msgspec.Struct, frozen=True):
    """The tools that one server listed when the tap was built."""

    name: ServerName
    version: str
    """The version from the server's handshake; empty if it gave none."""
    tools: list[msgspec.Raw]


class _Snapshot(msgspec.Struct, frozen=True):
    format: int
    servers: dict[str, ListedServer]


_SNAPSHOT: JsonCodec[_Snapshot] = JsonCodec(_Snapshot)


class SnapshotRead(msgspec.Struct, frozen=True):
    """The tool lists and versions of servers in a tap's `tools.json`, and findings."""

    lists: dict[ServerIdentity, list[ToolDefinition]] = {}
    versions: dict[ServerIdentity, str] = {}
    """The version of each server in `lists`; empty if it gave none."""
    findings: tuple[Finding, ...] = ()


def read_snapshot(data: bytes) -> SnapshotRead:
    """Return the tools in the content of `tools.json`.

    There is a finding if the content cannot be used, and one for each server whose tools are not
    all accepted. Servers after the first `MOST_SERVERS` are left out without a finding.
    """
    if len(data) > MOST_BYTES:
        return _unusable(f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        snapshot = _SNAPSHOT.decode(data)
    except (MalformedError, RecursionError) as error:
        return _unusable(f"{error}; `capd tap build` writes it anew")
    if snapshot.format != FORMAT:
        return _unusable(f"its format is {snapshot.format}, and this capd reads {FORMAT}")
    lists: dict[ServerIdentity, list[ToolDefinition]] = {}
    findings: list[Finding] = []
    for identity, server in list(snapshot.servers.items())[:MOST_SERVERS]:
        intake = ToolIntake()
        for entry in server.tools:
            # On one line, because clients get definitions unchanged in messages of one line.
            intake.take(msgspec.json.format(bytes(entry), indent=-1))
            if intake.is_full:
                break
        if intake.finding:
            findings.append(Finding(FILE, 0, f"{server.name[:64]}: {intake.finding}"))
        lists[ServerIdentity(identity)] = [each.definition for each in intake.taken]
    versions = {identity: snapshot.servers[identity].version for identity in lists}
    return SnapshotRead(lists, versions, tuple(findings))


def written_snapshot(
    servers: Iterable[tuple[ServerIdentity, ServerName, str, Iterable[ToolDefinition]]],
) -> bytes:
    """Return the content of `tools.json`. Equal input gives equal bytes.

    Each server is a tuple of its identity, its name, its version and its tools.
    """
    listed: Mapping[str, ListedServer] = {
        identity: ListedServer(name, version, [msgspec.Raw(t.json) for t in tools])
        for identity, name, version, tools in servers
    }
    ordered = dict(sorted(listed.items(), key=lambda each: (each[1].name, each[0])))
    text = msgspec.json.format(msgspec.json.encode(_Snapshot(FORMAT, ordered)), indent=1)
    return text + b"\n"


def _unusable(reason: str) -> SnapshotRead:
    return SnapshotRead(findings=(Finding(FILE, 0, f"left out: {reason}"),))
