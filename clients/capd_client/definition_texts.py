"""Texts for a person about tool definitions: what changed, and what looks suspicious."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

_KINDS = ("changed", "added", "removed")
_NAMES_SHOWN = 5
COMMAND = "capd trust definitions"

_STANDING = {
    "project": "a project's server: changes are withheld",
    "pinned": "of a pinned version: changes are withheld",
}


def status_line(status: Mapping[str, Any]) -> str:
    """Return the line on tool definitions for `capd status`; empty if nothing is to be decided.

    `status` is the daemon's answer to `status`.
    """
    found = status.get("definitions") or {}
    counts = [f"{found[kind]} {kind}" for kind in _KINDS if found.get(kind)]
    lost = [str(each) for each in found.get("lost") or []]
    if not counts and not lost:
        return ""
    names = [str(each) for each in found.get("servers") or []]
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    of = f" of {', '.join(names[:_NAMES_SHOWN])}{more}" if names else ""
    withheld = f", {found['withheld']} withheld" if found.get("withheld") else ""
    changed = f"{', '.join(counts)} tools{of}{withheld}" if counts else "nothing changed"
    gone = f"; what was trusted of {', '.join(lost)} is lost" if lost else ""
    return f"definitions: {changed}{gone} (see: {COMMAND})"


def overview(found: Mapping[str, Any]) -> str:
    """Return the line that `capd trust definitions` prints if nothing has changed.

    `found` is the daemon's answer to `definitions`.
    """
    servers = found.get("servers") or []
    tools = sum(int(each.get("tools", 0)) for each in servers)
    many = "server" if len(servers) == 1 else "servers"
    return f"nothing has changed: {tools} tools of {len(servers)} {many} are as they were trusted"


def change_lines(server: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that a person reads before deciding on the changes of a server.

    `server` is an entry of the daemon's answer to `definitions`.
    """
    standing = _STANDING.get(str(server.get("standing")), "")
    about = f" ({standing})" if standing else ""
    yield f"{server.get('name')}{about}: {server.get('tools', 0)} tools are trusted"
    if server.get("is_lost"):
        yield "  what was trusted of it is lost: compare each with what you expect of it"
    for change in server.get("changes") or []:
        words = [f"{change.get('kind')} {_moment(change.get('seen_at'))}".rstrip()]
        if change.get("is_rejected"):
            words.append("rejected")
        if change.get("is_withheld"):
            words.append("withheld")
        yield f"  {change.get('tool')}: {', '.join(words)}"
        shown = str(change.get("difference") or "")
        if shown:
            yield from shown.split("\n")
        elif change.get("kind") != "removed":
            yield "  (there is too much to show: decide on it alone, with --tool)"


def flag_rows(found: Mapping[str, Any]) -> list[Sequence[str]]:
    """Return a row for each flag: server, tool, flag, the suspicious text, and its place.

    `found` is the daemon's answer to `definitions`.
    """
    return [
        (
            str(server.get("name")),
            str(flag.get("tool")),
            str(flag.get("code")),
            str(flag.get("seen")),
            str(flag.get("source")),
        )
        for server in found.get("servers") or []
        for flag in server.get("flags") or []
    ]


def _moment(value: Any) -> str:
    if not isinstance(value, int | float) or value <= 0:
        return ""
    return f"{datetime.fromtimestamp(value):%Y-%m-%d %H:%M}"
