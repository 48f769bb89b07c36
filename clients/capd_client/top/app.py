"""The screen of `capd top`: sessions, servers, decisions and events.

Two threads each have a connection: one polls the status, the other receives events, after which the
status is polled at once. Both reconnect when the daemon restarts.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Footer, Input, Static

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.terminal import duration, printable
from capd_client.top.details import (
    ANSWER_KEYS,
    approval_details,
    approvals_line,
    decision_details,
    event_words,
    server_details,
    session_details,
)
from capd_client.top.rows import (
    DECISION_COLUMNS,
    SERVER_COLUMNS,
    SESSION_COLUMNS,
    CallRate,
    decision_key,
    decision_rows,
    head_line,
    server_key,
    server_rows,
    session_rows,
)

_EVENTS_SHOWN = 5
_SCRIPTS_SHOWN = 5
_COLOURS = {
    **dict.fromkeys(("ready", "activate"), "green"),
    **dict.fromkeys(("starting", "backing_off", "stopping", "lingering", "suggest"), "yellow"),
    **dict.fromkeys(("failed", "parked"), "red"),
    "abstain": "dim",
}
"""The colour of a cell that consists of one of these words."""
_SOONEST = 0.2
"""The least seconds between two polls, however many events come."""


class TopApp(App[int]):
    """The screen that shows the status of the daemon at `socket`.

    The status is polled after each event, and every `every` seconds.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: auto; padding: 0 1; background: $panel; }
    #trouble { height: auto; padding: 0 1; color: $error; display: none; }
    #approvals { height: auto; padding: 0 1; color: $warning; display: none; }
    .title { height: 1; padding: 0 1; text-style: bold; }
    DataTable { height: 1fr; min-height: 3; }
    #decisions { height: 7; }
    #events { height: auto; padding: 0 1; }
    #details { height: auto; max-height: 12; padding: 0 1; border: round $accent; display: none; }
    #filter { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("tab", "app.focus_next", "Next table", show=True),
        # A table takes enter for itself, and says which row was chosen.
        Binding("enter", "nothing", "Details", show=True),
        Binding("w", "why", "Why"),
        Binding("slash", "search", "Search"),
        Binding("p", "pause", "Pause"),
        Binding("a", "approvals", "Approve"),
        *(Binding(key, f"answer('{answer}')", show=False) for key, answer in ANSWER_KEYS.items()),
        Binding("escape", "close", "Close", show=False),
    ]

    def __init__(self, socket: str, every: float) -> None:
        super().__init__()
        self._socket = socket
        self._every = max(every, _SOONEST)
        self._rate = CallRate()
        self._events: list[str] = []
        self._status: Mapping[str, Any] = {}
        self._is_paused = False
        self._filter = ""
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self._listening: Control | None = None
        self._waiting: list[Mapping[str, Any]] = []
        self._shown_call: int | None = None
        """The number of the call whose details are open: keys answer it. None if none is open."""

    def compose(self) -> ComposeResult:
        """Yield the widgets, from top to bottom."""
        yield Static("asking ...", id="head", markup=False)
        yield Static("", id="trouble", markup=False)
        yield Static("", id="approvals", markup=False)
        with Vertical():
            yield Static("sessions", classes="title")
            yield DataTable(id="sessions", cursor_type="row", zebra_stripes=True)
            yield Static("servers", classes="title")
            yield DataTable(id="servers", cursor_type="row", zebra_stripes=True)
        yield Static("last decisions", classes="title")
        yield DataTable(id="decisions", cursor_type="row", zebra_stripes=True)
        yield Static("events", classes="title")
        yield Static("", id="events", markup=False)
        yield Static("", id="details", markup=False)
        yield Input(placeholder="show rows with", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Start the two threads that ask the daemon."""
        self.query_one("#sessions", DataTable).add_columns(*SESSION_COLUMNS)
        self.query_one("#servers", DataTable).add_columns(*SERVER_COLUMNS)
        self.query_one("#decisions", DataTable).add_columns(*DECISION_COLUMNS)
        self.query_one("#sessions", DataTable).focus()
        self.run_worker(self._poll, thread=True, name="poll")
        self.run_worker(self._listen, thread=True, name="listen")

    def on_unmount(self) -> None:
        """Stop the two threads that ask the daemon."""
        self._is_over.set()
        self._wake.set()
        if self._listening is not None:
            self._listening.close()

    # Requests to the daemon, in threads

    def _poll(self) -> None:
        control = Control(self._socket, client="capd top")
        while not self._is_over.is_set():
            try:
                status = control.call("status")
                waiting = control.call("approvals").get("waiting") or []
            except (DaemonDownError, ControlError) as error:
                control.close()
                self._update(self._trouble, str(error))
            else:
                self._update(self._show, status, time.time(), time.monotonic())
                self._update(self._show_approvals, waiting)
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

    # Display, in the event loop of the screen

    def _show(self, status: Mapping[str, Any], now: float, at: float) -> None:
        rate = self._rate.of(status, at)
        if self._is_paused:
            return
        self._status = status
        self.query_one("#head", Static).update(head_line(status, rate))
        degraded = (status.get("daemon") or {}).get("degraded") or []
        self._show_trouble("\n".join(f"degraded: {printable(each)}" for each in degraded))
        self._fill("#sessions", session_rows(status, now))
        self._fill("#servers", server_rows(status))
        self._fill("#decisions", decision_rows(status))

    def _fill(self, where: str, rows: list[tuple[str, tuple[str, ...]]]) -> None:
        table = self.query_one(where, DataTable)
        at = table.cursor_row
        table.clear()
        wanted = self._filter.casefold()
        shown = [row for row in rows if wanted in " ".join(row[1]).casefold()]
        for key, cells in shown:
            table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in cells), key=key)
        if shown:
            table.move_cursor(row=min(at, len(shown) - 1))

    def _on_daemon_event(self, event: Mapping[str, Any]) -> None:
        if self._is_paused:
            return
        words = event_words(str(event.get("topic", "?")), event.get("event") or {})
        self._events = [*self._events, f"{time.strftime('%H:%M:%S')} {words}"][-_EVENTS_SHOWN:]
        self.query_one("#events", Static).update("\n".join(self._events))

    def _show_approvals(self, waiting: list[Mapping[str, Any]]) -> None:
        self._waiting = waiting
        place = self.query_one("#approvals", Static)
        place.update(approvals_line(waiting))
        place.display = bool(waiting)
        if self._shown_call is not None and self._shown_call not in self._numbers():
            # It was answered elsewhere, or its time is over.
            self.action_close()

    def _numbers(self) -> list[Any]:
        return [each.get("number") for each in self._waiting]

    # Keys and input

    def on_data_table_row_selected(self, selected: DataTable.RowSelected) -> None:
        """Show the details of the row that enter was pressed on."""
        self._show_details(str(selected.data_table.id), str(selected.row_key.value))

    def action_why(self) -> None:
        """Explain the selected decision, or the last one if none is selected."""
        table = self.query_one("#decisions", DataTable)
        if table.row_count:
            key = table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value
            self._show_details("decisions", str(key))

    def action_approvals(self) -> None:
        """Show the call that waits longest for a person."""
        if self._waiting:
            self._open_details(approval_details(self._waiting[0], time.time()))
            self._shown_call = int(self._waiting[0]["number"])

    def action_answer(self, answer: str) -> None:
        """Answer the call whose details are shown, if there is one."""
        number = self._shown_call
        if number is not None:
            self.run_worker(lambda: self._answer(number, answer), thread=True, name="approve")

    def _answer(self, number: int, answer: str) -> None:
        try:
            with Control(self._socket, client="capd top") as control:
                control.call("approve", {"number": number, "answer": answer})
        except (DaemonDownError, ControlError) as error:
            self._update(self._open_details, [printable(str(error))])
        self._wake.set()

    def action_search(self) -> None:
        """Ask for the text that rows must contain."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Show the rows that contain the typed text; all rows if it is empty."""
        self._filter = submitted.value.strip()
        submitted.input.display = bool(self._filter)
        self.query_one("#sessions", DataTable).focus()
        self._wake.set()

    def action_pause(self) -> None:
        """Stop updating the screen, or continue."""
        self._is_paused = not self._is_paused
        self.query_one("#head", Static).update("paused: p goes on" if self._is_paused else "...")
        self._wake.set()

    def action_close(self) -> None:
        """Close the details, and show all rows again."""
        self._shown_call = None
        self.query_one("#details", Static).display = False
        field = self.query_one("#filter", Input)
        field.value, field.display, self._filter = "", False, ""
        self.query_one("#sessions", DataTable).focus()
        self._wake.set()

    def action_nothing(self) -> None:
        """Do nothing, because the focused table handles enter itself."""

    def _show_details(self, table: str, key: str) -> None:
        of = self._status.get(table) or []
        if table == "decisions":
            found = next((each for each in of if decision_key(each) == key), None)
            if found is not None:
                self.run_worker(lambda: self._look_up_why(found), thread=True, name="why")
            return
        if table == "sessions":
            session = next((each for each in of if str(each.get("key")) == key), None)
            if session is not None:
                self.run_worker(lambda: self._look_up_scripts(session), thread=True, name="scripts")
            return
        lines = [server_details(each) for at, each in enumerate(of) if server_key(at, each) == key]
        if lines:
            self._open_details(lines[0])

    def _look_up_scripts(self, session: Mapping[str, Any]) -> None:
        listed = self._asked_why(str(session.get("key") or ""), _SCRIPTS_SHOWN)
        scripts = listed.get("scripts") or []
        self._update(self._open_details, session_details(session, scripts))

    def _asked_why(self, session: str, limit: int) -> Mapping[str, Any]:
        """Return the daemon's answer to `why` for a session; empty if it does not answer."""
        try:
            with Control(self._socket, client="capd top") as control:
                return control.call("why", {"session": session, "limit": limit})
        except (DaemonDownError, ControlError):
            return {}

    def _look_up_why(self, decision: Mapping[str, Any]) -> None:
        why: Mapping[str, Any] | None = None
        listed = self._asked_why(str(decision.get("session") or ""), 50)
        for each in listed.get("decisions") or []:
            if each.get("fingerprint") == decision.get("fingerprint"):
                why = each
                break
        self._update(self._open_details, decision_details(decision, why))

    def _open_details(self, lines: list[str]) -> None:
        self._shown_call = None
        place = self.query_one("#details", Static)
        place.update("\n".join(lines))
        place.display = True

    def _trouble(self, why: str) -> None:
        self._show_trouble(f"{printable(why)} - asked again each {duration(self._every)}")

    def _show_trouble(self, text: str) -> None:
        place = self.query_one("#trouble", Static)
        place.update(text)
        place.display = bool(text)
