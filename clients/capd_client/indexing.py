"""`capd index`: one request that takes minutes, and its progress beside it."""

import os
import threading
from typing import Any

from capd_client import tables
from capd_client.control import Control, DaemonDownError

_TIMEOUT = 3700.0
_LAST_WORD = 0.5
"""The last event may come a moment after the result."""


def indexed(socket: str, session: str, *, show_progress: bool) -> dict[str, Any]:
    """Return the daemon's result; print a line as each server has answered."""
    with Control(socket, timeout=_TIMEOUT) as control, Control(socket) as watcher:
        # A daemon thread: it ends with the last event, or with the command.
        follower = threading.Thread(target=_follow, args=(watcher,), daemon=True)
        if show_progress:
            follower.start()
        params = {"session": session, "project": os.getcwd()}  # noqa: PTH109 - one call, no import
        result = control.call("index", params)
        if show_progress and result.get("servers"):
            follower.join(_LAST_WORD)
        return result


def _follow(watcher: Control) -> None:
    try:
        for each in watcher.events(["index.server"]):
            event = each.get("event") or {}
            told = event.get("error") or f"{event.get('tools', 0)} tools"
            place = f"{event.get('done', '?')}/{event.get('total', '?')}"
            tables.say(f"{place} {event.get('name', '?')}: {told}")
            if event.get("done") == event.get("total"):
                return
    except (DaemonDownError, OSError):
        return
