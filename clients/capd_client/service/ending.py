"""Asking the daemon to end, and waiting until it has."""

import contextlib
import os
import select
import time

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.service.manager import ServiceError

PATIENCE = 30.0
_LOOK_AGAIN = 0.05


def ask_to_end(socket: str, *, for_good: bool) -> int:
    """Have the daemon end; return its process, 0 where none runs.

    With `for_good` its clients are told not to start another one.

    Raises:
        ServiceError: it refused.
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
    """Wait until a process has ended; one whose parent has not heard of it has ended as well.

    Raises:
        ServiceError: it goes on.
    """
    if not _has_ended(pid, PATIENCE):
        raise ServiceError(f"the daemon (pid {pid}) does not end; kill {pid} ends it")


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
