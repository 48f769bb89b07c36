"""Shows on standard error what a command waits for, and for how many seconds.

On a terminal this is one line. It appears after a second, and disappears when the wait is over.
Elsewhere only permanent lines (`print_above`) are written, because a changing line is useless in a
log.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, TextIO

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.terminal import printable, width

FIRST_AFTER = 1.0
"""Seconds before the line appears: most commands are done by then."""
_EVERY = 0.2
_DOWNLOADS_AFTER = 3.0
"""Seconds after which a start is taken for a server's first one, which downloads a package. npx and
uvx say nothing while they download; a server whose package is there already is ready sooner."""
_BAR = 20
_CLEAR = "\r\x1b[K"


class Waiting:
    """A context manager that shows what a command waits for while its block runs.

    `what` is the text. `look` is called before each update, in a thread of its own, and may block;
    what it returns is shown instead, unless that is empty. `first_after` is in seconds.
    """

    def __init__(
        self,
        what: str,
        look: Callable[[], str] | None = None,
        *,
        first_after: float = FIRST_AFTER,
        stream: TextIO | None = None,
    ) -> None:
        """Note what to show; nothing is shown yet. `stream` defaults to standard error."""
        self._stream = sys.stderr if stream is None else stream
        self._what = what
        self._look = look
        self._first_after = first_after
        self._began_at = time.monotonic()
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start counting seconds."""
        if self._stream.isatty():
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_over.set()
            if self._thread is not None:
                self._stream.write(_CLEAR)
                self._stream.flush()

    def say(self, what: str) -> None:
        """Show `what` from now on."""
        self._what = what
        if self._thread is not None and self._elapsed() >= self._first_after:
            self._show(what)

    def print_above(self, line: str) -> None:
        """Print a permanent line above the changing one."""
        with self._lock:
            self._stream.write(f"{_CLEAR if self._thread else ''}{printable(line)}\n")
            self._stream.flush()

    def _run(self) -> None:
        self._is_over.wait(self._first_after)
        while not self._is_over.is_set():
            self._show((self._look() if self._look is not None else "") or self._what)
            self._is_over.wait(_EVERY)

    def _show(self, what: str) -> None:
        with self._lock:
            if not self._is_over.is_set():
                self._stream.write(_CLEAR + line_of(what, self._elapsed()))
                self._stream.flush()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began_at


def line_of(what: str, elapsed: float) -> str:
    """Return the text of the changing line: `what`, cut to the width, and the elapsed seconds."""
    seconds = f" {int(elapsed)} s"
    text = printable(what)
    room = width() - len(seconds) - 1
    return (text if len(text) <= room else f"{text[: room - 1]}…") + seconds


def bar(done: int, total: int) -> str:
    """Return a progress bar for `done` of `total`: `[#####...............] 1/4`."""
    filled = _BAR * done // total if total else 0
    return f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{total or '?'}"


def server_words(servers: list[dict[str, Any]]) -> str:
    """Return a text about those of `servers` that are being started; empty if there are none.

    `uptime_s` of such a server has to be the seconds since its start began, which differs from the
    daemon's answer: there it is 0 until the server is ready.
    """
    words = []
    for each in servers:
        name, state = each.get("name", "?"), each.get("state")
        if state == "starting":
            is_long = float(each.get("uptime_s") or 0) > _DOWNLOADS_AFTER
            words.append(f"starting {name}" + (" (a first start downloads it)" if is_long else ""))
        elif state == "backing_off":
            words.append(f"starting {name} again ({each.get('last_error') or 'it ended'})")
    return ", ".join(words)


@contextlib.contextmanager
def waiting_for_servers(socket: str, what: str) -> Iterator[Waiting]:
    """Show what a command waits for while the block runs; yield the `Waiting` that shows it.

    The text is `what`, or names the servers that the daemon at `socket` is starting.
    """
    control = Control(socket, client="capd waits")
    states: dict[str, float] = {}

    def look() -> str:
        try:
            servers = control.call("servers").get("servers") or []
        except (DaemonDownError, ControlError):
            return ""
        now = time.monotonic()
        starting = [each for each in servers if each.get("state") in {"starting", "backing_off"}]
        for each in starting:
            # The daemon's `uptime_s` begins when a server is ready, so the start is timed here.
            since = states.setdefault(str(each.get("instance")), now)
            each["uptime_s"] = now - since
        return server_words(starting)

    with Waiting(what, look) as shown:
        try:
            yield shown
        finally:
            control.close()
