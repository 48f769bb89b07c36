"""The daemon's status as lines for a person, readable at 80 columns."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from capd_client import definition_texts
from capd_client.remedies import remedy
from capd_client.terminal import duration, printable, size, styled, wrapped

WHOLE = 100
"""The percentage at which the whole catalog is embedded."""
DECISIONS_SHOWN = 5
REASONS_SHOWN = 3
MOST_USED_SHOWN = 3
_NAMES_IN_A_LINE = 4
_STATE_COLOURS = {"ready": "green", "failed": "red", "parked": "red"}

Document = Mapping[str, Any]


def status_lines(
    status: Document, *, now: float, columns: int, is_coloured: bool = False
) -> list[str]:
    """Return the page that `capd status` prints, as lines of at most `columns`.

    `status` is the daemon's answer to `status`; `now` is in seconds since the epoch.
    """
    page = _Page(columns, is_coloured)
    page.daemon(status)
    page.section("taps", [page.tap(each) for each in status.get("taps") or []])
    if status.get("not_watched"):
        page.say(f"not watched: {status['not_watched']}", "  ")
    sessions = [page.session(each, now) for each in status.get("sessions") or []]
    page.section("sessions", sessions)
    if status.get("bridges"):
        page.section("bridges", [[("  ", bridge_line(each, now))] for each in status["bridges"]])
    page.section("servers", [page.server(each) for each in status.get("servers") or []])
    decisions = list(status.get("decisions") or [])[-DECISIONS_SHOWN:]
    page.section("last decisions", [page.decision(each) for each in decisions])
    return page.lines


def client_of(session: Document) -> str:
    """Return the name of a session's client, for a person."""
    return str(session.get("client_title") or session.get("client") or "?")


def active_line(session: Document) -> str:
    """Return what is active in a session: `MCP active: 2/5 (git, web) + 1 single tool [work]`."""
    active = session.get("active") or []
    # The limit counts capabilities that list tools; single tools have a limit of their own.
    tools = [each for each in active if each.get("kind") == "tool"]
    others = [each for each in active if each.get("kind") != "tool"]
    taken = [each for each in others if each.get("kind") != "dependencies" and each.get("tools", 1)]
    names = ", ".join(str(each.get("name", "?")) for each in others)
    cap = session.get("cap")
    count = f"{len(taken)}/{cap}" if cap is not None else f"{len(taken)}"
    more = f" + {len(tools)} single tool{'s' if len(tools) > 1 else ''}" if tools else ""
    profile = f" [{session['profile']}]" if session.get("profile") else ""
    return f"MCP active: {count}" + (f" ({names})" if names else "") + more + profile


def active_lines(status: Document, session: str = "") -> list[str]:
    """Return the `active_line` of `session` in the daemon's status, or of all sessions if empty.

    If there are several, each line begins with its session's key.
    """
    found = [
        each for each in status.get("sessions") or [] if not session or each.get("key") == session
    ]
    if len(found) == 1:
        return [printable(active_line(found[0]))]
    return [printable(f"{each.get('key', '?')}: {active_line(each)}") for each in found]


def client_line(status: Document, client_session: str, project: str) -> str:
    """Return what is active in a client's conversation, as one line for the client to show.

    `status` is the daemon's status. The session is found by the client's own id of the
    conversation; otherwise by the project, if that has only one session. Empty unless exactly
    one session is found.
    """
    sessions = [each for each in status.get("sessions") or [] if not each.get("parent")]
    found = [each for each in sessions if client_session in (each.get("client_sessions") or [])]
    if not found:
        found = [each for each in sessions if project and each.get("project") == project]
    if len(found) != 1:
        return ""
    active = [str(each.get("name", "?")) for each in found[0].get("active") or []]
    shown = active[:_NAMES_IN_A_LINE]
    more = f" +{len(active) - len(shown)}" if len(active) > len(shown) else ""
    profile = f" [{found[0]['profile']}]" if found[0].get("profile") else ""
    return printable(f"capd: {', '.join(shown) or 'nothing on'}{more}{profile}")


def tap_line(tap: Document) -> str:
    """Return one line on how many capabilities of a tap are usable, and why others are not."""
    unroutable = tap.get("unroutable") or {}
    if tap.get("name") == OWN_MEMORIES:
        findings = len(tap.get("findings") or [])
        wrong = f", {many(findings, 'finding')} (`capd check`)" if findings else ""
        count = tap.get("memories", 0)
        return printable(f"your own: {count} {'memory' if count == 1 else 'memories'}{wrong}")
    routable, usable = tap.get("routable", 0), tap.get("usable")
    line = f"{tap.get('name', '?')}: {routable} routable"
    if isinstance(usable, int) and usable < routable:
        line = f"{tap.get('name', '?')}: {usable} of {routable} usable (`capd secret list`)"
    if unroutable:
        line += f", {len(unroutable)} not ({_reasons(unroutable.values())})"
    if tap.get("skills"):
        line += f", {many(tap['skills'], 'skill')}"
    if tap.get("memories"):
        line += f", {tap['memories']} {'memory' if tap['memories'] == 1 else 'memories'}"
    if tap.get("error"):
        line += f"; not reloaded: {tap['error']}"
    return printable(line)


def bridge_line(entry: Document, now: float) -> str:
    """Return one line for an open bridge; `now` is in seconds since the epoch."""
    target = f" to {entry['target']}" if entry.get("target") else ""
    opened_at = entry.get("opened_at")
    age = f", open for {duration(now - opened_at)}" if isinstance(opened_at, int | float) else ""
    refused = f", {entry['refused']} refused" if entry.get("refused") else ""
    sessions = many(entry.get("sessions") or 0, "session")
    what = f"{entry.get('name', '?')}  {entry.get('kind')}{target}, {sessions}{refused}{age}"
    return printable(f"{what}, pid {entry.get('pid')}")


def decision_words(entry: Document) -> tuple[str, str, str]:
    """Return the outcome, the name and the reason of a decision; a missing one is empty."""
    decision = entry.get("decision") or entry
    name = decision.get("name") or decision.get("id") or ""
    if isinstance(name, Mapping):
        name = name.get("name", "")
    return str(decision.get("outcome") or "?"), str(name), str(decision.get("reason") or "")


def script_words(script: Document) -> str:
    """Return how a script ended, and what it called: `result in 61 ms: git__log x12`."""
    calls = []
    for each in script.get("calls") or []:
        count, outcome = each.get("count", 1), each.get("outcome", "?")
        many_ = f" x{count}" if count != 1 else ""
        calls.append(
            f"{each.get('tool', '?')}{many_}{'' if outcome == 'result' else f' {outcome}'}"
        )
    called = ", ".join(calls) or "no calls"
    return f"{script.get('outcome', '?')} in {script.get('ms') or 0:,.0f} ms: {called}"


def clock(at: object) -> str:
    """Return `HH:MM:SS` in the user's time zone; dashes if `at` is not a number of seconds."""
    if not isinstance(at, int | float):
        return "--:--:--"
    return time.strftime("%H:%M:%S", time.localtime(at))


OWN_MEMORIES = "~"
"""The name under which the user's own memories are listed among the taps."""


class _Page:
    """The lines of the status page, which are appended in order."""

    def __init__(self, columns: int, is_coloured: bool) -> None:
        self.lines: list[str] = []
        self._columns = columns
        self._is_coloured = is_coloured

    def say(self, text: str, first: str = "", further: str | None = None) -> None:
        """Append `text`, wrapped: the first line is indented by `first`, others by `further`."""
        more = first if further is None else further
        self.lines += wrapped(text, self._columns, first=first, further=more)

    def section(self, title: str, entries: Sequence[Iterable[tuple[str, str]]]) -> None:
        """Append a heading and its entries; an entry is a series of (indentation, text)."""
        self.lines += ["", styled(title, "bold", is_coloured=self._is_coloured)]
        for entry in entries:
            for indent, text in entry:
                self.say(text, indent, f"{indent}  ")
        if not entries:
            self.lines.append("  none")

    def daemon(self, status: Document) -> None:
        """Append the state of the daemon and of its embedding model."""
        daemon = status.get("daemon") or {}
        self.say(
            f"capd {daemon.get('version', '?')}, pid {daemon.get('pid', '?')}, "
            f"up {duration(daemon.get('uptime_s'))}, {size(daemon.get('rss_bytes'))}"
        )
        self.say(_model(status.get("embedder") or {}), further="  ")
        for each in map(str, daemon.get("degraded") or []):
            start = len(self.lines)
            self.say(f"degraded: {each}", further="  ")
            self.lines[start:] = [
                styled(line, "red", is_coloured=self._is_coloured) for line in self.lines[start:]
            ]
            self.say(f"fix: {remedy(each)}", "  ", "    ")
        if daemon.get("needs_restart"):
            changed = ", ".join(map(str, daemon["needs_restart"]))
            self.say(f"needs a restart: {changed} (`capd restart`)", further="  ")
        for project, lines in (daemon.get("project_files") or {}).items():
            for line in lines:
                self.say(f"{project}: {line}", further="  ")
        if status.get("ledger"):
            self.say(_records(status["ledger"]), further="  ")
        if line := definition_texts.status_line(status):
            self.say(line, further="  ")
        if status.get("index"):
            self.say(_index(status["index"]), further="  ")

    def tap(self, tap: Document) -> Iterator[tuple[str, str]]:
        """Yield entries that say how a tap was loaded."""
        yield "  ", tap_line(tap) + (f"  [{tap['revision']}]" if tap.get("revision") else "")

    def session(self, session: Document, now: float) -> Iterator[tuple[str, str]]:
        """Yield entries with a session's client, its tools, and what is on in it."""
        client = f"{client_of(session)} {session.get('pid') or ''}".strip()
        where = str(session.get("project") or session.get("far_project") or "no project")
        over = f" over the bridge {session['bridge']}" if session.get("bridge") else ""
        parts = [client, where + over]
        if "age_s" in session:
            parts.append(f"{duration(session['age_s'])} old")
        if session.get("connected") is False:
            parts.append("lost its client")
        yield "  ", f"{session.get('key', '?')}  {', '.join(parts)}"
        yield "    ", _surface(session)
        if line := _tokens(session):
            yield "    ", line
        if line := _index_line(session):
            yield "    ", line
        yield "    ", active_line(session)
        if problem := session.get("profile_problem"):
            yield "    ", f"no profile: {problem}"
        used = [
            f"{each.get('name', '?')} {duration(now - each['last_used_at'])} ago"
            for each in session.get("active") or []
            if isinstance(each.get("last_used_at"), int | float)
        ]
        if used:
            yield "    ", f"last used: {', '.join(used)}"
        if line := _memories(session.get("memories") or {}):
            yield "    ", line

    def server(self, server: Document) -> Iterator[tuple[str, str]]:
        """Yield entries with a server's state, and the sessions that use it."""
        leases = [str(each) for each in server.get("leases") or []]
        held = f"held by {len(leases)} ({', '.join(leases)})" if leases else "held by nobody"
        pid = f"pid {server['pid']}, " if server.get("pid") else ""
        is_up = server.get("pid") or server.get("bridge")
        up = f"up {duration(server.get('uptime_s'))}, " if is_up else ""
        parts = [f"{pid}{up}{held}", many(server.get("tools", 0), "tool")]
        parts.append(f"{server.get('scope', '?')}")
        if server.get("bridge"):
            parts.append(f"runs over the bridge {server['bridge']}")
        if server.get("sandbox"):
            parts.append(f"sandbox {server['sandbox']}")
        if server.get("membership"):
            parts.append(f"membership {server['membership']}")
        if server.get("restarts"):
            parts.append(f"restarts {server['restarts']}")
        yield "  ", f"{server.get('name', '?')}  {server.get('state', '?')}, {', '.join(parts)}"
        if server.get("cwd_reason"):
            yield "    ", f"runs in {server.get('cwd')}: {server['cwd_reason']}"
        if server.get("last_error"):
            yield "    ", f"last error: {server['last_error']}"
        for finding in server.get("findings") or []:
            yield "    ", str(finding)

    def decision(self, entry: Document) -> Iterator[tuple[str, str]]:
        """Yield entries that say what was decided for a message."""
        outcome, name, reason = decision_words(entry)
        words = " ".join(word for word in (outcome, name) if word)
        why = f" ({reason})" if reason else ""
        yield "  ", f"{clock(entry.get('at'))}  {entry.get('session') or '?'}  {words}{why}"


def _model(embedder: Document) -> str:
    model = " ".join(str(embedder[key]) for key in ("model", "revision") if embedder.get(key))
    line = f"model {model or 'none'}: {embedder.get('state', 'unknown')}"
    if embedder.get("reason"):
        line += f" ({embedder['reason']})"
    if (percent := embedder.get("percent", WHOLE)) < WHOLE:
        line += f", routing is partly ready: {percent} %"
    if embedder.get("pid"):
        line += f", pid {embedder['pid']}, {size(embedder.get('rss_bytes'))}"
    profile = embedder.get("profile") or {}
    if profile:
        line += "; profile: " + ", ".join(f"{key} {value}" for key, value in profile.items())
    return line


def _surface(session: Document) -> str:
    line = f"{session.get('surface', 0)}/{session.get('available', 0)} tools"
    if session.get("unlisted"):
        line += f" ({session['unlisted']} on and not listed)"
    return f"{line}, {session.get('mode', '?')}"


def _tokens(session: Document) -> str:
    """Return what a session costs and saves in tokens, as far as they are counted."""
    tokens, saved = session.get("tokens"), session.get("tokens_saved")
    state = str(session.get("tokens_state") or "").replace("_", " ")
    if tokens is None:
        return f"tokens: {state}" if state else ""
    if saved is None:
        return f"{tokens:,} tokens of tools" + (f", {state}" if state else "")
    so_far = f"{abs(saved):,} {'fewer' if saved >= 0 else 'more'} so far than with every tool"
    return f"{tokens:,} tokens of tools, {so_far}"


def _memories(memories: Document) -> str:
    """Return how many memories were delivered, and how many had no room."""
    delivered, left_out = memories.get("told"), memories.get("left_out")
    if not delivered and not left_out:
        return ""
    tokens = f"{memories.get('tokens')} of {memories.get('budget')} tokens"
    line = f"memories: {delivered} delivered, {tokens}"
    return f"{line}, {left_out} left out" if left_out else line


def _index(index: Document) -> str:
    """Return the size of the index, and which of its capabilities are used most."""
    line = f"index: {index.get('capabilities', 0)} capabilities"
    if index.get("set_by_user"):
        line += f", {index['set_by_user']} values set by hand"
    used = [
        f"{each.get('name')} {each.get('uses')}x, {100 * (each.get('success_rate') or 0):.0f} %"
        f", {each.get('mean_ms') or 0:.0f} ms"
        for each in (index.get("most_used") or [])[:MOST_USED_SHOWN]
    ]
    return f"{line}; most used: {'; '.join(used)}" if used else line


def _index_line(session: Document) -> str:
    """Return how much of the index the session's model was given, and how much had no room."""
    index = session.get("index") or {}
    if not index.get("listed") and not index.get("left_out"):
        return ""
    line = f"index: {index.get('listed', 0)} capabilities in {index.get('tokens', 0)} tokens"
    if index.get("left_out"):
        line += f", {index['left_out']} left out"
    if index.get("suggestions_left_out"):
        line += f", {index['suggestions_left_out']} suggestions left out"
    return line


def _records(ledger: Document) -> str:
    """Return one line on the rows that the ledger keeps."""
    if not ledger.get("enabled"):
        return "records: none are kept ([ledger] enabled = false)"
    rows = (ledger.get("rows") or {}).items()
    counts = [many(count, str(table).removesuffix("s")) for table, count in rows if count]
    line = f"records: {', '.join(counts) or 'none yet'}, {size(ledger.get('size_bytes'))}"
    for word in ("waiting", "dropped"):
        line += f", {ledger[word]} {word}" if ledger.get(word) else ""
    return line


def many(count: object, noun: str) -> str:
    """Return a count with its noun: `1 session`, `2 sessions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _reasons(reasons: Iterable[Any]) -> str:
    counted = Counter(str(each) for each in reasons)
    shown = [
        f"{reason}: {count}" if len(counted) > 1 else reason
        for reason, count in counted.most_common(REASONS_SHOWN)
    ]
    return "; ".join([*shown, "..."] if len(counted) > REASONS_SHOWN else shown)
