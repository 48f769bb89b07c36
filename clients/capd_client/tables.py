"""The daemon's answers as sentences and tables for a person.

Names, descriptions and errors come from servers, so control sequences in them are escaped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from capd_client import definition_texts
from capd_client.columns import cell_width, print_table
from capd_client.status_text import active_line, client_of, tap_line
from capd_client.terminal import duration, limited_width, printable, wrapped

__all__ = ["printable", "tap_line"]


def say(text: object, *, keep_lines: bool = False) -> None:
    """Print a text to standard output, escaped; on a terminal, wrapped to its width.

    With `keep_lines`, line ends in the text stay and nothing is wrapped.
    """
    columns = limited_width()
    line = printable(text, keep_lines=keep_lines)
    if keep_lines or columns is None or cell_width(line) <= columns:
        click.echo(line)
        return
    indent = line[: len(line) - len(line.lstrip())]
    for each in wrapped(line.strip(), columns, first=indent, further=f"{indent}  "):
        click.echo(each)


def say_lines(text: str) -> None:
    """Print each line of a text by `say`."""
    for line in text.splitlines():
        say(line)


def fitting(text: str) -> str:
    """Return a text of several lines, escaped, and on a terminal wrapped to its width."""
    columns = limited_width()
    lines = printable(text, keep_lines=True).splitlines()
    if columns is None:
        return "\n".join(lines)
    return "\n".join(
        each
        for line in lines
        for each in ([line] if cell_width(line) <= columns else wrapped(line, columns))
    )


_SERVER_COLUMNS = (
    *("server", "state", "pid", "scope", "held by", "tools", "up", "restarts", "membership"),
    *("sandbox", "runs in", "error"),
)


def _server_row(server: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        server.get("name"),
        server.get("state"),
        server.get("pid") or "",
        server.get("scope"),
        ", ".join(map(str, server.get("leases") or [])) or "nobody",
        server.get("tools"),
        duration(server.get("uptime_s")),
        server.get("restarts"),
        server.get("membership") or "",
        server.get("sandbox") or "",
        _runs_in(server),
        server.get("last_error") or "",
    )


def _runs_in(server: Mapping[str, Any]) -> str:
    folder, reason = str(server.get("cwd") or ""), server.get("cwd_reason")
    return f"{folder} (held: {reason})" if reason else folder


def print_servers(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `servers` as a table."""
    rows = [_server_row(each) for each in result.get("servers") or []]
    print_table(_SERVER_COLUMNS, rows)


def print_sessions(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `sessions` as a table."""
    columns = (
        *("session", "client", "pid", "project", "linked", "mode"),
        *("tools", "tokens", "saved", "active"),
    )
    rows = [
        (
            each.get("key"),
            client_of(each),
            each.get("pid"),
            each.get("project"),
            _linked(each),
            each.get("mode"),
            f"{each.get('surface', 0)}/{each.get('available', 0)}",
            _count(each, "tokens"),
            _saved(each),
            active_line(each).removeprefix("MCP active: "),
        )
        for each in result.get("sessions") or []
    ]
    print_table(columns, rows)


def _count(session: Mapping[str, Any], member: str) -> Any:
    value = session.get(member)
    return str(session.get("tokens_state") or "").replace("_", " ") if value is None else value


def _saved(session: Mapping[str, Any]) -> str:
    value = _count(session, "tokens_saved")
    return f"{-value} lost" if isinstance(value, int) and value < 0 else str(value)


def _linked(session: Mapping[str, Any]) -> str:
    """Return the client's own ids of a session, and how a prompt hook was matched to the session.

    It is `no` if there are no ids and no hook was matched.
    """
    ids = ", ".join(map(str, session.get("client_sessions") or []))
    by = f"by {session['linked_by']}" if session.get("linked_by") else ""
    return " ".join(part for part in (ids, by) if part) or "no"


def print_capabilities(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `caps`: each capability, and why no message can activate it."""
    columns = (
        *("capability", "provider", "routable", "servers", "missing", "active in"),
        *("uses", "worked", "mean", "tokens"),
    )
    rows = [
        (
            f"{each.get('tap')}/{each.get('name')}",
            each.get("provider"),
            "yes" if each.get("routable") else f"no: {each.get('reason') or 'no reason given'}",
            ", ".join(map(str, each.get("servers") or [])),
            ", ".join(map(str, each.get("missing") or [])),
            ", ".join(map(str, each.get("active_in") or [])),
            *_metrics(each.get("metrics") or {}),
        )
        for each in result.get("capabilities") or []
    ]
    print_table(columns, rows)


def _metrics(metrics: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the cells for a capability's uses, success rate, mean time and tools' tokens."""
    rate, mean = metrics.get("success_rate"), metrics.get("mean_ms")
    return (
        metrics.get("uses") or "",
        "" if rate is None else f"{rate:.0%}",
        "" if mean is None else f"{mean:.0f} ms",
        "" if metrics.get("token_cost") is None else metrics["token_cost"],
    )


def print_tools(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `tools`: the tools that a session lists to its client."""
    rows = [
        (each.get("name"), str(each.get("description") or "").strip().partition("\n")[0])
        for each in result.get("tools") or []
    ]
    print_table(("tool", "what it does"), rows)


def print_hits(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `discover`: capabilities and skills that fit a text."""
    rows = [
        (
            f"{each.get('tap')}/{each.get('name')}",
            _score(each.get("score")),
            _triggers([str(trigger) for trigger in each.get("triggers") or []]),
            ", ".join(map(str, each.get("missing") or [])),
            ", ".join(map(str, each.get("active_in") or [])),
        )
        for each in result.get("hits") or []
    ]
    print_table(("capability", "score", "triggers", "missing", "active in"), rows)
    print_skills(result)


def _triggers(triggers: Sequence[str]) -> str:
    """Return one of the triggers as an example, with the number of the others."""
    more = f", and {len(triggers) - 1} more" if len(triggers) > 1 else ""
    return f"“{triggers[0]}”{more}" if triggers else ""


def print_flags(found: Mapping[str, Any]) -> None:
    """Print the suspicious parts of definitions, from the daemon's answer to `definitions`."""
    columns = ("server", "tool", "flag", "seen", "known from")
    print_table(columns, definition_texts.flag_rows(found))


def print_taps(taps: Sequence[Mapping[str, Any]]) -> None:
    """Print the entries of the list of taps, `name` and `path` of each."""
    print_table(("tap", "path"), [(each["name"], each["path"]) for each in taps])


def print_clients(rows: Iterable[Sequence[Any]]) -> None:
    """Print the clients that capd can be added to: rows of id, title, state and file."""
    print_table(("client", "", "state", "file"), rows)


def print_turn(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `turn`: what it did with a message, and why."""
    changed = result.get("changed") or {}
    took = f" in {result['ms']:.0f} ms" if isinstance(result.get("ms"), int | float) else ""
    top = result.get("top") or []
    if result.get("outcome") == "activate":
        part = ", with the tools that the budget has room for" if result.get("reason") else ""
        say(f"{result.get('name')} is on{part}{took}")
    else:
        best = f" (best: {top[0].get('name')} {_score(top[0].get('score'))})" if top else ""
        say(f"nothing is switched on{took}: {result.get('reason') or 'no reason given'}{best}")
    for each in result.get("unusable") or []:
        repairs = [f"capd secret set {key}" for key in each.get("keys") or []]
        repairs += [f"{program} is not installed" for program in each.get("programs") or []]
        say(
            f"  {each.get('name')} fits and cannot be used ({each.get('reason')})"
            + (f": {'; '.join(repairs)}" * bool(repairs))
        )
    print_changes(changed)
    if result.get("budgeted") is not None:
        say(f"  {result['budgeted']} tokens at most")
    for each in result.get("left_out") or []:
        tokens = "" if each.get("tokens") is None else f", {each['tokens']} tokens"
        say(f"  left out: {each.get('kind')} {each.get('name')}{tokens}: {each.get('reason')}")


def print_changes(changed: Mapping[str, Any]) -> None:
    """Print the names of the tools in `added` and `removed`, one a line."""
    for word, mark in (("added", "+"), ("removed", "-")):
        for name in changed.get(word) or []:
            say(f"  {mark} {name}")


def print_event(params: Mapping[str, Any]) -> None:
    """Print one event, as `Control.events` yields it, on a line."""
    event = params.get("event") or {}
    facts = " ".join(f"{key}={value}" for key, value in event.items() if key != "type")
    say(f"{datetime.now():%H:%M:%S} {params.get('topic', '?')} {facts}")


def print_result(result: Mapping[str, Any]) -> None:
    """Print a tool's result: texts to standard output, a note on anything else to stderr.

    Control characters are escaped in a pipe as well, because its end may be a terminal; `--json`
    prints the text as the server wrote it.
    """
    blocks = result.get("content") or []
    for block in blocks:
        if block.get("type") == "text":
            say(block.get("text", ""), keep_lines=True)
        else:
            size = len(str(block.get("data") or ""))
            kind = " ".join(str(block.get(key)) for key in ("type", "mimeType") if block.get(key))
            note = f"[{kind or '?'}, {size} characters; --json has all of it]"
            click.echo(printable(note), err=True)
    if not blocks and "structuredContent" in result:
        click.echo(json.dumps(result["structuredContent"]))


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table with the titles `columns` and these rows."""
    print_table(columns, rows)


def _score(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else ""


def print_skills(result: Mapping[str, Any]) -> None:
    """Print the skills in the daemon's answer to `discover`, if it has any."""
    rows = [
        (f"skill:{each.get('name', '?')}", _score(each.get("score")), each.get("description"))
        for each in result.get("skills") or []
    ]
    if rows:
        say("")
        print_table(("skill", "score", "for"), rows)


def print_found(result: Mapping[str, Any]) -> None:
    """Print the daemon's answer to `search`: results, best first; notes go to standard error."""
    rows = [
        (_score(each.get("score")), each.get("kind"), each.get("name"), each.get("description"))
        for each in result.get("ranked") or []
    ]
    if rows:
        print_table(("score", "kind", "name", "for"), rows)
    elif not result.get("text"):
        say("nothing fits")
    if result.get("text"):
        click.echo(printable(result["text"]), err=bool(rows))
