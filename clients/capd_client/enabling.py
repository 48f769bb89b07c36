"""`capd enable`: one request that takes minutes where something is installed, and its progress."""

import sys
import threading
from collections.abc import Iterator
from typing import Any

from capd_client import tables
from capd_client.control import Control, ControlError, DaemonDownError


def enabled(socket: str, name: str, session: str, *, show_progress: bool) -> dict[str, Any]:
    """Return the daemon's result; say on stderr what dependency scripts do meanwhile."""
    params = {"name": name, **({"session": session} if session else {})}
    with Control(socket) as control:
        if not show_progress:
            return control.call("enable", params)
        with Control(socket) as watcher:
            events = watcher.events(["install."])
            # A daemon thread: it ends with the connection, or with the command.
            threading.Thread(target=_follow, args=(events,), daemon=True).start()
            return control.call("enable", params)


def _follow(events: Iterator[dict[str, Any]]) -> None:
    try:
        for each in events:
            line = _line(str(each.get("topic")), each.get("event") or {})
            if line:
                sys.stderr.write(f"{tables.printable(line)}\n")
                sys.stderr.flush()
    except (DaemonDownError, ControlError, OSError):
        return


def _line(topic: str, event: dict[str, Any]) -> str:
    dependency, seconds = event.get("dependency", "?"), event.get("seconds", 0)
    match topic:
        case "install.started":
            return f"{dependency}: installing"
        case "install.said":
            return f"{dependency}: {event.get('line', '')} ({seconds:.0f} s)"
        case "install.ended" if event.get("outcome") != "present":
            return f"{dependency}: {event.get('outcome', '')} ({seconds:.0f} s)"
    return ""
