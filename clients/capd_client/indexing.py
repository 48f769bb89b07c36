"""Asks the daemon for an index, which takes minutes, and shows the progress.

On a terminal the progress is a bar on standard error; elsewhere one line for each server.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from capd_client import tables
from capd_client.control import Control, DaemonDownError
from capd_client.shim.replay import is_encodable
from capd_client.terminal import many
from capd_client.waiting import Waiting, bar

_LAST_WORD = 0.5
"""Seconds to wait for the last event, which may come after the result."""


def run_index(
    socket: str, session: str, *, show_progress: bool, asks_servers: bool = True
) -> dict[str, Any]:
    """Ask the daemon at `socket` to index all servers, and return its result.

    `session` is the key of the session with whose environment values servers are started, or empty.
    With `show_progress`, the progress is shown on standard error. Without `asks_servers`, the index
    is written from saved tool lists.

    Raises:
        DaemonDownError: no daemon answers.
        ControlError: the daemon refused.
    """
    with (
        Control(socket) as control,
        Control(socket) as watcher,
        _shown(
            "asking servers" if asks_servers else "writing the index",
            is_bar=show_progress and sys.stderr.isatty(),
        ) as show,
    ):
        # A daemon thread: it ends with the last event, or with the command.
        follower = threading.Thread(target=_follow, args=(watcher, show), daemon=True)
        if show_progress:
            follower.start()
        params = {"session": session, "project": _project(), "asks_servers": asks_servers}
        result = control.call("index", params)
        if show_progress and result.get("servers"):
            follower.join(_LAST_WORD)
        return result


def _project() -> str:
    """Return the current folder; "" if it was deleted or its path is not UTF-8."""
    try:
        folder = os.getcwd()  # noqa: PTH109 - one call, no import
    except FileNotFoundError:
        return ""
    return folder if is_encodable(folder) else ""


@contextmanager
def _shown(doing: str, *, is_bar: bool) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Show progress while the block runs; yield a function that takes events of topic `index.`.

    `doing` says what is being done. With `is_bar` the progress is one changing line.
    """
    if not is_bar:
        yield _say
        return
    with Waiting(doing, first_after=0) as waiting:

        def show(event: Mapping[str, Any]) -> None:
            if event.get("error"):
                waiting.print_above(f"{event.get('name')}: {event['error']}")
            place = bar(int(event.get("done") or 0), int(event.get("total") or 0))
            name = f" {event['name']}" if event.get("name") else ""
            waiting.say(f"asking servers {place}{name}")

        yield show


def _say(event: Mapping[str, Any]) -> None:
    if "name" not in event:
        total = event.get("total", 0)
        tables.say(f"asking {many(total, 'server')}")
        return
    outcome = event.get("error") or many(event.get("tools", 0), "tool")
    place = f"{event.get('done', '?')}/{event.get('total', '?')}"
    tables.say(f"{place} {event.get('name', '?')}: {outcome}")


def _follow(watcher: Control, show: Callable[[Mapping[str, Any]], None]) -> None:
    try:
        for each in watcher.events(["index.started", "index.server"]):
            event = each.get("event") or {}
            show(event)
            if event.get("done", 0) == event.get("total"):
                return
    except (DaemonDownError, OSError):
        return
