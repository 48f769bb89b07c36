"""The details pane of `capd top` for a selected row, and the descriptions of events."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capd_client.status_text import (
    active_line,
    client_of,
    clock,
    decision_words,
    many,
    script_words,
)
from capd_client.terminal import duration, printable

Document = Mapping[str, Any]


def session_details(session: Document, scripts: Sequence[Document] = ()) -> list[str]:
    """Return lines about `session`, an entry of the daemon's status.

    `scripts` are the session's scripts in the daemon's answer to `why`, newest first.
    """
    lines = [
        f"{session.get('key', '?')}: {client_of(session)}, process {session.get('pid') or '?'}",
        f"project: {session.get('project') or 'none'}",
        (
            f"{active_line(session)}; {session.get('surface', 0)} of "
            f"{session.get('available', 0)} tools listed ({session.get('mode', '?')})"
        ),
        f"{many(session.get('calls', 0), 'call')} that succeeded",
    ]
    lines += [
        f"  on: {each.get('tap', '?')}/{each.get('name', '?')}"
        for each in session.get("active") or []
    ]
    lines += [f"  script {clock(each.get('at'))}: {script_words(each)}" for each in scripts]
    return [printable(line) for line in lines]


def server_details(server: Document) -> list[str]:
    """Return lines about `server`, an entry of the daemon's status."""
    lines = [
        (
            f"{server.get('name', '?')}: {server.get('state', '?')}, "
            f"{many(server.get('tools', 0), 'tool')}, shared by {server.get('scope', '?')}"
        ),
        (
            f"process {server.get('pid') or 'none'}, up {duration(server.get('uptime_s'))}, "
            f"restarted {many(server.get('restarts', 0), 'time')}"
        ),
        f"held by: {', '.join(map(str, server.get('leases') or [])) or 'nobody'}",
    ]
    if server.get("sandbox"):
        lines.append(f"sandbox: {server['sandbox']}")
    if server.get("last_error"):
        lines.append(f"last error: {server['last_error']}")
    return [printable(line) for line in [*lines, *map(str, server.get("findings") or [])]]


def decision_details(decision: Document, why: Document | None) -> list[str]:
    """Return lines about `decision`, an entry of the daemon's status.

    `why` is the same decision in the daemon's answer to `why`, which says more; None if it is not
    there.
    """
    outcome, name, reason = decision_words(decision)
    head = " ".join(part for part in (outcome, name, f"({reason})" if reason else "") if part)
    lines = [f"{clock(decision.get('at'))}  {decision.get('session') or '?'}  {head}"]
    found = why or {}
    scores = ", ".join(
        f"{top.get('name')} {top.get('score', 0):.2f}" for top in found.get("top") or []
    )
    for word, text in (("scores", scores), ("why", found.get("why")), ("then", found.get("came"))):
        if text:
            lines.append(f"{word}: {text}")
    lines += [f"next: {each}" for each in found.get("next") or []]
    return [printable(line) for line in lines]


ANSWER_KEYS = {"1": "once", "2": "session", "3": "always", "0": "refuse"}
"""The key for each answer to the call that is shown."""


def approvals_line(waiting: list[Document]) -> str:
    """Return one line about the calls that wait for approval; empty if there are none."""
    if not waiting:
        return ""
    first = waiting[0]
    more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
    return printable(
        f"waiting for your approval: {first.get('server')}:{first.get('tool')}{more} - "
        "a shows and answers it"
    )


def approval_details(entry: Document, now: float) -> list[str]:
    """Return lines about `entry`, a call that waits for approval, with the keys that answer it.

    `now` is in seconds since the epoch.
    """
    lines = [
        f"{entry.get('number')}: {entry.get('server')}:{entry.get('tool')}",
        f"arguments: {entry.get('arguments')}",
        f"its server says of what it changes: {entry.get('hint')}",
        f"called by {entry.get('client')} in {entry.get('project') or 'no project'}",
        f"asked by the rule '{entry.get('rule')}' in {entry.get('place')}",
        f"refused in {duration(max(0.0, float(entry.get('until') or 0) - now))}",
        "1 once   2 for this session   3 always   0 refuse   escape: later",
    ]
    return [printable(line) for line in lines]


_WORDS = {
    "daemon.stopping": "the daemon is ending",
    "definitions.changed": "{name} has other tools than you trusted: capd trust definitions",
    "definitions.settled": "you have decided about the tools of {name}",
    "embedder.exited": "the model's process ended",
    "embedder.needed": "the model is wanted",
    "embedder.stuck": "the model does not answer: its process is ended",
    "index.changed": "the map of {capabilities} capabilities is another one",
    "index.server": "{name} was asked for its tools ({done} of {total})",
    "index.started": "{total} servers are asked for their tools",
    "index.tools": "{tools} tools of {servers} servers can be found",
    "install.ended": "{dependency}: {outcome}",
    "install.said": "{dependency}: {line}",
    "install.started": "{dependency} is being installed",
    "registry.changed": "taps were read again",
    "registry.decided": "a message of {session}: {outcome} {name}",
    "server.exited": "{name} ended: {reason}",
    "server.listed": "{name} listed its tools",
    "server.started": "{name} was started",
    "server.tools_changed": "{name} has other tools",
    "session.approval_asked": "{tool} waits for your approval: capd approve {number}",
    "session.approval_ended": "{tool} does not wait for your approval any more",
    "session.capability_used": "{capability[name]} was used in {session}",
    "session.ended": "{session} ended",
    "session.result_compacted": "a long result of {tool} was cut to {characters_out} characters",
    "session.routing_taught": "what followed a message of {session} is learnt",
    "session.started": "{client} connected as {session}",
    "session.surface_changed": "{session} has other tools on its list",
    "settings.changed": "settings were read again",
}
"""The words for each topic of events (docs/records.md); fields of the event are filled in."""


def event_words(topic: str, event: Document) -> str:
    """Return an event in words, followed by its topic in brackets.

    The words come from `_WORDS`; for a topic that is not there, they are the event's fields.
    """
    try:
        words = _WORDS[topic].format(**event)
    except (KeyError, IndexError, ValueError):
        words = " ".join(_facts(event))
    return printable(f"{words} ({topic})" if words else topic)


def _facts(event: Document) -> Iterator[str]:
    yield from (f"{key}={value}" for key, value in event.items() if key != "type")
