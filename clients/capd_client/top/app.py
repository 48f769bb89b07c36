"""The screen of `capd top`: sessions, servers, what was decided and what happens.

Two threads ask, each on a connection of its own: one polls the status, one hears events, which
have it polled at once. The daemon may go and come back meanwhile.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Static

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.terminal import duration, printable
from capd_client.top.rows import (
    SERVER_COLUMNS,
    SESSION_COLUMNS,
    CallRate,
    decision_lines,
    head_line,
    server_rows,
    session_rows,
)

_EVENTS_SHOWN = 5
_SOONEST = 0.2
"""Seconds between two questions, however much happens."""


class TopApp(App[int]):
    """Shows what `status` says, again and again."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #trouble { height: auto; padding: 0 1; color: $error; display: none; }
    .title { height: 1; padding: 0 1; text-style: bold; }
    DataTable { height: 1fr; min-height: 3; }
    #decisions, #events { height: auto; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("tab", "app.focus_next", "Next table", show=True),
    ]

    def __init__(self, socket: str, every: float) -> None:
        super().__init__()
        self._socket = socket
        self._every = max(every, _SOONEST)
        self._rate = CallRate()
        self._events: list[str] = []
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self._listening: Control | None = None

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static("asking ...", id="head", markup=False)
        yield Static("", id="trouble", markup=False)
        with Vertical():
            yield Static("sessions", classes="title")
            yield DataTable(id="sessions", cursor_type="row", zebra_stripes=True)
            yield Static("servers", classes="title")
            yield DataTable(id="servers", cursor_type="row", zebra_stripes=True)
        yield Static("last decisions", classes="title")
        yield Static("", id="decisions", markup=False)
        yield Static("events", classes="title")
        yield Static("", id="events", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to ask."""
        self.query_one("#sessions", DataTable).add_columns(*SESSION_COLUMNS)
        self.query_one("#servers", DataTable).add_columns(*SERVER_COLUMNS)
        self.query_one("#sessions", DataTable).focus()
        self.run_worker(self._poll, thread=True, name="poll")
        self.run_worker(self._listen, thread=True, name="listen")

    def on_unmount(self) -> None:
        """Have both threads end."""
        self._is_over.set()
        self._wake.set()
        if self._listening is not None:
            self._listening.close()

    # Asking, in threads

    def _poll(self) -> None:
        control = Control(self._socket, client="capd top")
        while not self._is_over.is_set():
            try:
                status = control.call("status")
            except (DaemonDownError, ControlError) as error:
                control.close()
                self._update(self._trouble, str(error))
            else:
                self._update(self._show, status, time.time(), time.monotonic())
            self._is_over.wait(_SOONEST)
            self._wake.wait(self._every - _SOONEST)
            self._wake.clear()
        control.close()

    def _listen(self) -> None:
        while not self._is_over.is_set():
            self._listening = control = Control(self._socket, client="capd top")
            try:
                for event in control.events():
                    self._update(self._on_daemon_event, event)
                    self._wake.set()
            except (DaemonDownError, ControlError):
                pass
            finally:
                control.close()
            self._is_over.wait(self._every)

    def _update(self, show: Any, *facts: Any) -> None:
        if not self._is_over.is_set() and self.is_running:
            self.call_later(show, *facts)

    # Showing, on the screen's own task

    def _show(self, status: Mapping[str, Any], now: float, at: float) -> None:
        rate = self._rate.of(status, at)
        self.query_one("#head", Static).update(head_line(status, rate))
        degraded = (status.get("daemon") or {}).get("degraded") or []
        self._show_trouble("\n".join(f"degraded: {printable(each)}" for each in degraded))
        self._fill("#sessions", session_rows(status, now))
        self._fill("#servers", server_rows(status))
        self.query_one("#decisions", Static).update("\n".join(decision_lines(status)) or "none")

    def _fill(self, where: str, rows: list[tuple[str, tuple[str, ...]]]) -> None:
        table = self.query_one(where, DataTable)
        at = table.cursor_row
        table.clear()
        for key, cells in rows:
            table.add_row(*(Text(cell) for cell in cells), key=key)
        if rows:
            table.move_cursor(row=min(at, len(rows) - 1))

    def _on_daemon_event(self, event: Mapping[str, Any]) -> None:
        facts = event.get("event") or {}
        words = " ".join(f"{key}={value}" for key, value in facts.items() if key != "type")
        line = f"{time.strftime('%H:%M:%S')} {event.get('topic', '?')} {words}"
        self._events = [*self._events, printable(line)][-_EVENTS_SHOWN:]
        self.query_one("#events", Static).update("\n".join(self._events))

    def _trouble(self, why: str) -> None:
        self._show_trouble(f"{printable(why)} - asked again each {duration(self._every)}")

    def _show_trouble(self, text: str) -> None:
        place = self.query_one("#trouble", Static)
        place.update(text)
        place.display = bool(text)
