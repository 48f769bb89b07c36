"""The rows of the tables of `capd top`, and the rate of calls."""

from collections.abc import Mapping
from typing import Any

from capd_client.status_text import active_line, client_of, clock, decision_words, many
from capd_client.terminal import duration, printable, size

SESSION_COLUMNS = ("session", "client", "calls", "tools", "active", "last used", "project")
SERVER_COLUMNS = ("server", "state", "pid", "held by", "tools", "up", "restarts", "last error")
DECISION_COLUMNS = ("at", "session", "outcome", "capability", "reason")
_DECISIONS_SHOWN = 20

Row = tuple[str, tuple[str, ...]]
"""A key that identifies the row within its table, and its cells."""


class CallRate:
    """Computes calls per second from the counts of two successive statuses."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._at: float | None = None

    def of(self, status: Mapping[str, Any], at: float) -> float:
        """Return the rate since the previous status; `at` is from a monotonic clock, in seconds."""
        counts = {
            str(each.get("key")): int(each.get("calls") or 0)
            for each in status.get("sessions") or []
        }
        # All calls of a new session are new. So are those of one whose count began again.
        made = sum(
            count - before if (before := self._before.get(key, 0)) <= count else count
            for key, count in counts.items()
        )
        before_at, self._at, self._before = self._at, at, counts
        return made / (at - before_at) if before_at is not None and at > before_at else 0.0


def head_line(status: Mapping[str, Any], rate: float) -> str:
    """Return one line with the state of the daemon, from its status, and the rate of calls."""
    daemon, model = status.get("daemon") or {}, status.get("embedder") or {}
    parts = [
        f"capd {daemon.get('version', '?')}",
        f"pid {daemon.get('pid', '?')}",
        f"up {duration(daemon.get('uptime_s'))}",
        size(daemon.get("rss_bytes")),
        f"model {model.get('state', '?')}",
        many(len(status.get("sessions") or []), "session"),
        many(len([s for s in status.get("servers") or [] if s.get("pid")]), "server"),
        f"{rate:.1f} calls/s",
    ]
    return printable("  ".join(parts))


def session_rows(status: Mapping[str, Any], now: float) -> list[Row]:
    """Return one row for each session; `now` is in seconds since the epoch."""
    rows = []
    for each in status.get("sessions") or []:
        used = [
            entry["last_used_at"]
            for entry in each.get("active") or []
            if isinstance(entry.get("last_used_at"), int | float)
        ]
        cells = (
            each.get("key", "?"),
            client_of(each),
            each.get("calls", 0),
            f"{each.get('surface', 0)}/{each.get('available', 0)}",
            active_line(each).removeprefix("MCP active: "),
            f"{duration(now - max(used))} ago" if used else "",
            each.get("project") or "",
        )
        rows.append(_row(str(each.get("key", "?")), cells))
    return rows


def server_rows(status: Mapping[str, Any]) -> list[Row]:
    """Return one row for each instance of a server."""
    rows = []
    for at, each in enumerate(status.get("servers") or []):
        is_up = bool(each.get("pid"))
        cells = (
            each.get("name", "?"),
            each.get("state", "?"),
            each.get("pid") or "",
            ", ".join(map(str, each.get("leases") or [])) or "nobody",
            each.get("tools", 0),
            duration(each.get("uptime_s")) if is_up else "",
            each.get("restarts", 0),
            each.get("last_error") or "",
        )
        rows.append(_row(server_key(at, each), cells))
    return rows


def server_key(at: int, server: Mapping[str, Any]) -> str:
    """Return the key of the row of the server at index `at` of the status."""
    return f"{at} {server.get('instance', '')}"


def decision_key(entry: Mapping[str, Any]) -> str:
    """Return the key of the row of a decision."""
    return f"{entry.get('at')} {entry.get('session')} {entry.get('fingerprint')}"


def decision_rows(status: Mapping[str, Any]) -> list[Row]:
    """Return one row for each decision, newest first."""
    rows: dict[str, Row] = {}
    for entry in reversed(list(status.get("decisions") or [])[-_DECISIONS_SHOWN:]):
        cells = (clock(entry.get("at")), entry.get("session") or "?", *decision_words(entry))
        rows[decision_key(entry)] = _row(decision_key(entry), cells)
    return list(rows.values())


def _row(key: str, cells: tuple[Any, ...]) -> Row:
    return key, tuple(printable(cell) for cell in cells)
