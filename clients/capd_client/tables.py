"""What a person reads of the daemon's answers: plain sentences, and tables by rich.

rich is imported when a table is printed and not before. Names, descriptions and errors come
from servers: nothing of them reaches a terminal that could steer it.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from capd_client import definition_texts

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH_OF_FILES = 200
_REASONS_SHOWN = 3
_DECISIONS_SHOWN = 5


def printable(text: object, *, keep_lines: bool = False) -> str:
    """Return `text` with everything escaped that is not a visible character.

    Escapes control sequences, directions of writing and invisible characters alike.
    """
    kept = "\n\t" if keep_lines else ""
    return "".join(
        each if each.isprintable() or each in kept else each.encode("unicode_escape").decode()
        for each in str(text)
    )


def say(text: object, *, keep_lines: bool = False) -> None:
    """Print one line to standard output."""
    click.echo(printable(text, keep_lines=keep_lines))


def tap_line(tap: Mapping[str, Any]) -> str:
    """Return the one line that says how a tap was loaded."""
    unroutable = tap.get("unroutable") or {}
    line = f"{tap.get('name', '?')}: {tap.get('routable', 0)} routable"
    if unroutable:
        line += f", {len(unroutable)} not ({_reasons(unroutable.values())})"
    if tap.get("skills"):
        line += f", {tap['skills']} skills"
    if tap.get("error"):
        line += f"; not reloaded: {tap['error']}"
    return printable(line)


def _reasons(reasons: Iterable[Any]) -> str:
    counted = Counter(str(each) for each in reasons)
    shown = [
        f"{reason}: {count}" if len(counted) > 1 else reason
        for reason, count in counted.most_common(_REASONS_SHOWN)
    ]
    return "; ".join([*shown, "..."] if len(counted) > _REASONS_SHOWN else shown)


def active_line(session: Mapping[str, Any]) -> str:
    """Return a session's active set in its one-line form."""
    active = session.get("active") or []
    names = ", ".join(str(each.get("name", "?")) for each in active)
    cap = session.get("cap")
    count = f"{len(active)}/{cap}" if cap is not None else f"{len(active)}"
    return f"MCP active: {count}" + (f" ({names})" if names else "")


def print_status(status: Mapping[str, Any]) -> None:
    """Print everything about the daemon on one screen."""
    console = _console()
    daemon = status.get("daemon") or {}
    say(
        f"capd {daemon.get('version', '?')}, pid {daemon.get('pid', '?')}, "
        f"up {_duration(daemon.get('uptime_s'))}, {_size(daemon.get('rss_bytes'))}"
    )
    for each in daemon.get("degraded") or []:
        say(f"degraded: {each}")
    embedder = status.get("embedder") or {}
    reason = f" ({embedder['reason']})" if embedder.get("reason") else ""
    model = " ".join(str(embedder[key]) for key in ("model", "revision") if embedder.get(key))
    say(f"model {model or 'none'}: {embedder.get('state', 'unknown')}{reason}")
    _heading("taps")
    for tap in status.get("taps") or []:
        say(f"  {tap_line(tap)}" + (f"  [{tap['revision']}]" if tap.get("revision") else ""))
    if status.get("not_watched"):
        say(f"  not watched: {status['not_watched']}")
    _heading("sessions")
    for session in status.get("sessions") or []:
        say(f"  {_session_line(session)}")
        say(f"    {active_line(session)}")
    _heading("servers")
    _print_rows(
        console, _SERVER_COLUMNS, [_server_row(each) for each in status.get("servers") or []]
    )
    if line := definition_texts.status_line(status):
        say(f"\n{line}", keep_lines=True)
    _heading("last decisions")
    decisions = list(status.get("decisions") or [])[-_DECISIONS_SHOWN:]
    _print_rows(console, ("", "", "", ""), [_decision_row(each) for each in decisions])


def _heading(text: str) -> None:
    click.echo(f"\n{text}")


def _session_line(session: Mapping[str, Any]) -> str:
    surface = f"{session.get('surface', 0)}/{session.get('available', 0)} tools"
    age = f", {_duration(session['age_s'])} old" if "age_s" in session else ""
    tokens = ""
    if session.get("tokens") is not None:
        tokens = f", {session['tokens']} tokens ({session.get('tokens_saved', 0)} saved)"
    return (
        f"{session.get('key', '?')}  {session.get('client', '?')} {session.get('pid', '')}  "
        f"{session.get('project', '')}  {surface}{tokens}{age}"
    )


_SERVER_COLUMNS = ("server", "state", "pid", "scope", "held by", "tools", "up", "restarts", "error")


def _server_row(server: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        server.get("name"),
        server.get("state"),
        server.get("pid") or "",
        server.get("scope"),
        ", ".join(map(str, server.get("leases") or [])) or "nobody",
        server.get("tools"),
        _duration(server.get("uptime_s")),
        server.get("restarts"),
        server.get("last_error") or "",
    )


def _decision_row(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    decision = entry.get("decision") or entry
    name = decision.get("name") or decision.get("id") or ""
    if isinstance(name, Mapping):
        name = name.get("name", "")
    at = entry.get("at")
    when = f"{datetime.fromtimestamp(at):%H:%M:%S}" if isinstance(at, int | float) else ""
    why = name or decision.get("reason") or ""
    return (when, entry.get("session"), decision.get("outcome"), why)


def print_servers(result: Mapping[str, Any]) -> None:
    """Print every server."""
    rows = [_server_row(each) for each in result.get("servers") or []]
    _print_rows(_console(), _SERVER_COLUMNS, rows)


def print_sessions(result: Mapping[str, Any]) -> None:
    """Print every session."""
    columns = (
        *("session", "client", "pid", "project", "linked", "mode"),
        *("tools", "tokens", "saved", "active"),
    )
    rows = [
        (
            each.get("key"),
            each.get("client"),
            each.get("pid"),
            each.get("project"),
            _linked(each),
            each.get("mode"),
            f"{each.get('surface', 0)}/{each.get('available', 0)}",
            each.get("tokens", ""),
            each.get("tokens_saved", ""),
            active_line(each).removeprefix("MCP active: "),
        )
        for each in result.get("sessions") or []
    ]
    _print_rows(_console(), columns, rows)


def _linked(session: Mapping[str, Any]) -> str:
    """Say under which ids the client knows the session, and by what its hook found it."""
    ids = ", ".join(map(str, session.get("client_sessions") or []))
    by = f"by {session['linked_by']}" if session.get("linked_by") else ""
    return " ".join(part for part in (ids, by) if part) or "no"


def print_capabilities(result: Mapping[str, Any]) -> None:
    """Print every capability, and why it is not routable."""
    columns = ("capability", "provider", "routable", "servers", "missing", "active in")
    rows = [
        (
            f"{each.get('tap')}/{each.get('name')}",
            each.get("provider"),
            "yes" if each.get("routable") else f"no: {each.get('reason') or 'no reason given'}",
            ", ".join(map(str, each.get("servers") or [])),
            ", ".join(map(str, each.get("missing") or [])),
            ", ".join(map(str, each.get("active_in") or [])),
        )
        for each in result.get("capabilities") or []
    ]
    _print_rows(_console(), columns, rows)


def print_tools(result: Mapping[str, Any]) -> None:
    """Print a session's surface."""
    rows = [
        (each.get("name"), str(each.get("description") or "").strip().partition("\n")[0])
        for each in result.get("tools") or []
    ]
    _print_rows(_console(), ("tool", "what it does"), rows)


def print_hits(result: Mapping[str, Any]) -> None:
    """Print what fits an intent."""
    rows = [
        (
            f"{each.get('tap')}/{each.get('name')}",
            _score(each.get("score")),
            ", ".join(map(str, each.get("triggers") or [])),
            ", ".join(map(str, each.get("missing") or [])),
            ", ".join(map(str, each.get("active_in") or [])),
        )
        for each in result.get("hits") or []
    ]
    _print_rows(_console(), ("capability", "score", "triggers", "missing", "active in"), rows)
    print_skills(result)


def print_flags(found: Mapping[str, Any]) -> None:
    """Print what in servers' definitions a person should look at."""
    columns = ("server", "tool", "flag", "seen", "known from")
    _print_rows(_console(), columns, definition_texts.flag_rows(found))


def print_taps(taps: Sequence[Mapping[str, Any]]) -> None:
    """Print the list of taps as configured."""
    _print_rows(_console(), ("tap", "path"), [(each["name"], each["path"]) for each in taps])


def print_turn(result: Mapping[str, Any]) -> None:
    """Print what a message led to."""
    changed = result.get("changed") or {}
    took = f" in {result['ms']:.0f} ms" if isinstance(result.get("ms"), int | float) else ""
    top = result.get("top") or []
    if result.get("outcome") == "activate":
        say(f"{result.get('name')} is on{took}")
    else:
        best = f" (best: {top[0].get('name')} {_score(top[0].get('score'))})" if top else ""
        say(f"nothing is switched on{took}: {result.get('reason') or 'no reason given'}{best}")
    print_changes(changed)


def print_changes(changed: Mapping[str, Any]) -> None:
    """Print the tools that came and went."""
    for word, mark in (("added", "+"), ("removed", "-")):
        for name in changed.get(word) or []:
            say(f"  {mark} {name}")


def print_event(params: Mapping[str, Any]) -> None:
    """Print one event on a line."""
    event = params.get("event") or {}
    facts = " ".join(f"{key}={value}" for key, value in event.items() if key != "type")
    say(f"{datetime.now():%H:%M:%S} {params.get('topic', '?')} {facts}")


def print_result(result: Mapping[str, Any]) -> None:
    """Print what a tool answered: its texts as they are, the rest by kind and size."""
    blocks = result.get("content") or []
    for block in blocks:
        if block.get("type") == "text":
            say(block.get("text", ""), keep_lines=True)
        else:
            size = len(str(block.get("data") or ""))
            say(f"[{block.get('type', '?')} {block.get('mimeType', '')} {size} characters]")
    if not blocks and "structuredContent" in result:
        say(result["structuredContent"])


def _console() -> "Console":
    from rich.console import Console  # noqa: PLC0415 - costs more than the question

    # Without a terminal there is no width: a file shall not break its lines at 80.
    is_for_person = sys.stdout.isatty() or bool(os.environ.get("COLUMNS"))
    return Console(
        file=sys.stdout,
        width=None if is_for_person else _WIDTH_OF_FILES,
        markup=False,
        emoji=False,
        highlight=False,
    )


def _print_rows(console: "Console", columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, show_header=any(columns), header_style="bold", pad_edge=True)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = (Text(printable("" if each is None else each)) for each in row)
        table.add_row(*cells)
    if table.row_count:
        console.print(table)
    else:
        click.echo("  none")


def _score(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""


def _size(value: Any) -> str:
    return f"{value / (1 << 20):.0f} MiB" if isinstance(value, int | float) else "? MiB"


def _duration(value: Any) -> str:
    if not isinstance(value, int | float):
        return "?"
    seconds = int(value)
    for size, unit, lesser, lesser_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // lesser} {lesser_unit}"
    return f"{seconds} s"


def print_skills(result: Mapping[str, Any]) -> None:
    """Print the skills that a search has found."""
    for skill in result.get("skills") or []:
        say(f"skill:{skill.get('name', '?')}  {skill.get('description') or ''}".rstrip())


def print_found_tools(result: Mapping[str, Any]) -> None:
    """Print the hits of a tool search, best first, and what is to be said about them."""
    for hit in result.get("hits") or []:
        definition = hit.get("definition") or {}
        first = str(definition.get("description") or "").strip().split("\n", 1)[0]
        say(f"{hit.get('name', '?')}  {first}".rstrip())
    print_skills(result)
    if result.get("text"):
        say(result["text"])
