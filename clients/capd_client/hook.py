"""`capd hook CLIENT`: a client's prompt hook, which sends the user's message to its session.

It reads the client's hook JSON from standard input and prints what that client understands
(`capd_client.hooks`). It never blocks an editor: after `BUDGET`, or after any error, it ends with
code 0 and prints nothing. In two cases it waits for as long as the client allows a hook to run:

- while the daemon is being started, at the first message after a boot;
- if the daemon answers that the turn is `held`, because its model is being loaded.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Mapping

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.hooks import CLIENTS
from capd_client.shim.client_facts import HOOK_LIMITS
from capd_protos.places import socket_path

BUDGET = 0.25
"""Seconds from the call of `main` to the end. With Python's own start, a hook takes less than
300 ms."""
BUDGET_VARIABLE = "CAPD_HOOK_BUDGET"
LONGEST_BUDGET = 4.0
"""The most seconds that a hook may take, whatever the user's setting or the client's own limit. The
hooks that capd installs have a limit of 5 s, and some clients complain when a hook exceeds it."""
_DELIVERY_TIME = 0.03
"""Seconds of the budget that are reserved for passing the answer on to the client."""
_SPARE_TIME = 1.0
"""Seconds of a client's limit that are left for Python's start and a loaded machine."""
_LOOK_AGAIN = 0.05
LONGEST_INPUT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


def main(arguments: list[str]) -> int:
    """Serve one hook event and return 0, always: a client could take another code as a veto.

    `arguments` are the name of the client, and of the event.
    """
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, budget(os.environ))
    try:
        return _serve(arguments)
    finally:
        # Python removes its handlers before it ends. An alarm after that would kill the process.
        signal.setitimer(signal.ITIMER_REAL, 0)


def budget(env: Mapping[str, str]) -> float:
    """Return the seconds that a hook may take: the setting in `env` if positive, else `BUDGET`."""
    try:
        wanted = float(env.get(BUDGET_VARIABLE, ""))
    except ValueError:
        return BUDGET
    return min(wanted, LONGEST_BUDGET) if wanted > 0 else BUDGET


def _serve(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in CLIENTS:
        # Some clients show a hook's standard error, and only a wrong installation comes here.
        sys.stderr.write(f"capd: hook takes one of {', '.join(CLIENTS)}\n")
        return 0
    try:
        event = json.loads(_input())
        if not isinstance(event, dict):
            return 0
        prompt = CLIENTS[arguments[0]].read(event, os.environ)
        if not prompt.text.strip():
            return 0
        # The output has the form of the client that runs the hook. A client may run the hook in
        # another client's settings.
        write = CLIENTS[prompt.client].write
        with _reached(prompt.client) as control:
            patience = _patience()
            params = {
                **prompt._asdict(),
                "mute": not write("x", ""),
                "patience": patience,
                # A hook that waited for the daemon's start has extended its budget already.
                "longest": _longest(prompt.client) if patience < BUDGET else 0.0,
            }
            turn = control.call("hook", params)
            if turn.get("held"):
                _wait_longer(prompt.client)
                params |= {"patience": _patience(), "longest": 0.0, "again": True}
                turn = control.call("hook", params)
        if printed := write(str(turn.get("context") or ""), str(turn.get("notice") or "")):
            sys.stdout.write(printed + "\n")
            sys.stdout.flush()
    except (OSError, ValueError, RecursionError, ControlError, DaemonDownError):
        # The client sends the prompt as if there were no capd.
        return 0
    return 0


def _reached(client: str) -> Control:
    """Return a connection to the daemon for a hook of `client`; wait for a daemon that is starting.

    If that daemon does not answer, the alarm that `main` has set ends the process.

    Raises:
        DaemonDownError: none runs, and nobody starts one.
    """
    path = socket_path(os.environ, os.getuid())
    control = Control(path, client="hook")
    try:
        control.connect()
    except DaemonDownError:
        if not _is_starting(path):
            raise
    else:
        return control
    _wait_longer(client)
    while True:
        with contextlib.suppress(DaemonDownError):
            control.connect()
            break
        time.sleep(_LOOK_AGAIN)
    return control


def _patience() -> float:
    """Return the seconds left to wait for an answer; never 0, so that the daemon is asked."""
    left = signal.getitimer(signal.ITIMER_REAL)[0]
    return round(max(left - _DELIVERY_TIME, _DELIVERY_TIME), 3)


def _longest(client: str) -> float:
    """Return the most seconds that a hook of `client` may take, if more than its budget, else 0.

    It is 0 as well if the user has set the budget.
    """
    if os.environ.get(BUDGET_VARIABLE):
        return 0.0
    limit = min(HOOK_LIMITS.get(client, 0) - _SPARE_TIME, LONGEST_BUDGET)
    return limit if limit > BUDGET else 0.0


def _is_starting(socket: str) -> bool:
    """Tell whether another process is starting the daemon whose socket is at `socket`.

    Such a process holds `start.lock` beside the socket.
    """
    try:
        fd = os.open(os.path.dirname(socket) + "/start.lock", os.O_RDONLY | os.O_NOFOLLOW)  # noqa: PTH120
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _wait_longer(client: str) -> None:
    """Extend the hook's budget to the limit of `client`, unless the user has set the budget."""
    if longest := _longest(client):
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        signal.setitimer(signal.ITIMER_REAL, left + longest - BUDGET)


def _input() -> bytes:
    """Return what the client wrote to standard input, up to `LONGEST_INPUT_BYTES`."""
    data = sys.stdin.buffer.read(LONGEST_INPUT_BYTES)
    # Some clients fail when their pipe closes before they have written everything.
    while len(data) == LONGEST_INPUT_BYTES and sys.stdin.buffer.read(_CHUNK_BYTES):
        pass
    return data


def _give_up(*_: object) -> None:
    # No cleaning up: whatever blocks this process, the editor must not wait longer.
    os._exit(0)
