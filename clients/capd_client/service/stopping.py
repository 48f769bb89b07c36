"""Ends the daemon and waits until it has ended.

A daemon whose socket is gone is found by the lock of its state folder.
"""

import contextlib
import fcntl
import os
import select
import signal
import time
from pathlib import Path

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.service.manager import ServiceError
from capd_protos.places import STATE_LOCK, Places

PATIENCE = 30.0
"""Seconds to wait for a daemon to end or to answer. It lets calls end for 8 s ([daemon] drain)."""
_LOOK_AGAIN = 0.05
_SOCKET_BACK = 5.0
"""Seconds to wait for a socket to come back: a living daemon checks and restores it each second."""


def end(where: Places, *, for_good: bool) -> int:
    """Ask the daemon with the paths `where` to end, and wait until it has ended.

    Return its pid; 0 if there was none. With `for_good`, its clients do not start another one.

    Raises:
        ServiceError: the daemon refused, or is still running.
    """
    pid = ask_to_end(where.socket, for_good=for_good) or _end_unreachable(where, for_good=for_good)
    if pid:
        await_end(pid)
    return pid


def holder(state: str) -> int:
    """Return the pid of the daemon that has locked the state folder `state`; 0 if there is none."""
    try:
        with Path(state, STATE_LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                word = file.read(32).partition(b"\n")[0]
                return int(word) if word.isdigit() else 0
    except OSError:
        pass
    return 0


def _end_unreachable(where: Places, *, for_good: bool) -> int:
    """End the daemon that has locked the state folder but cannot be reached at its socket.

    It is asked on the socket again for a few seconds, then gets SIGTERM. `for_good` is as for
    `end`. Return the daemon's pid; 0 if there is none.
    """
    pid = holder(where.state)
    give_up_at = time.monotonic() + _SOCKET_BACK
    while pid and time.monotonic() < give_up_at:
        if asked := ask_to_end(where.socket, for_good=for_good):
            return asked
        time.sleep(_LOOK_AGAIN)
        pid = holder(where.state)
    if pid:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return pid
        except PermissionError:
            raise ServiceError(f"the daemon (pid {pid}) belongs to another user") from None
    return pid


def ask_to_end(socket: str, *, for_good: bool) -> int:
    """Ask the daemon at `socket` to end; return its pid, 0 if none is running.

    With `for_good`, its clients are told not to start another one.

    Raises:
        ServiceError: the daemon refused.
    """
    try:
        with Control(socket) as control:
            pid = int(control.daemon["pid"])
            control.call("stop", {"for_good": True} if for_good else {})
    except DaemonDownError:
        return 0
    except ControlError as error:
        raise ServiceError(f"the daemon was not stopped: {error}") from None
    return pid


def await_end(pid: int) -> None:
    """Wait until the process `pid` has ended; a zombie counts as ended.

    Raises:
        ServiceError: the process is still running.
    """
    if not _has_ended(pid, PATIENCE):
        # A plain `kill` would not help: a daemon that is stuck while it stops ignores SIGTERM.
        raise ServiceError(
            f"the daemon (pid {pid}) has not ended within {PATIENCE:g} s\nTo end it: kill -9 {pid}"
        )


def _has_ended(pid: int, within: float) -> bool:
    opening = getattr(os, "pidfd_open", None)
    if opening is None:
        return _is_gone(pid, time.monotonic() + within)
    try:
        fd = opening(pid)
    except ProcessLookupError:
        return True
    except OSError:
        return _is_gone(pid, time.monotonic() + within)
    try:
        waiting = select.poll()
        waiting.register(fd, select.POLLIN)
        return bool(waiting.poll(within * 1000))
    finally:
        os.close(fd)


def _is_gone(pid: int, give_up_at: float) -> bool:
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < give_up_at:
            os.kill(pid, 0)
            time.sleep(_LOOK_AGAIN)
        return False
    return True
