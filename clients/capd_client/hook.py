"""`capd hook CLIENT`: a client's prompt hook hands the user's words to the right session.

It reads the client's hook JSON from standard input and prints what that client understands
(`capd_client.hooks`). It never stands in an editor's way: after `BUDGET`, or whatever goes wrong,
it ends with code 0 and says nothing (docs/design/relay.md).
"""

import json
import os
import signal
import sys
from collections.abc import Mapping

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.hooks import MODULES, pair_of
from capd_protos.places import socket_path

BUDGET = 0.25
"""Seconds from start to end; with Python's own start it stays under the 300 ms of the spec."""
BUDGET_VARIABLE = "CAPD_HOOK_BUDGET"
LONGEST_BUDGET = 4.0
"""Clients wait 5 s for a hook, as they were told, and some complain of one that takes longer."""
_SAYING = 0.03
"""Seconds of it that the answer takes to come here, and from here to the client."""
LONGEST_INPUT_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


def main(arguments: list[str]) -> int:
    """Serve one hook event; `arguments` are the client's name and the event's."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, budget(os.environ))
    try:
        return _serve(arguments)
    finally:
        # Python takes its handlers away before it ends: an alarm of that moment would kill.
        signal.setitimer(signal.ITIMER_REAL, 0)


def budget(env: Mapping[str, str]) -> float:
    """Return the seconds that a hook may take; the user's, where that is a number of some."""
    try:
        wanted = float(env.get(BUDGET_VARIABLE, ""))
    except ValueError:
        return BUDGET
    return min(wanted, LONGEST_BUDGET) if wanted > 0 else BUDGET


def _serve(arguments: list[str]) -> int:
    if not arguments or arguments[0] not in MODULES:
        # A hook's standard error is shown by some clients, and this is the installer's mistake.
        sys.stderr.write(f"capd: hook takes one of {', '.join(MODULES)}\n")
        return 0
    try:
        said = json.loads(_input())
        if not isinstance(said, dict):
            return 0
        prompt = pair_of(arguments[0]).prompt(said, os.environ)
        if not prompt.text.strip():
            return 0
        # The client that runs it decides what it understands, not the file that it found it in.
        answer = pair_of(prompt.client).answer
        with Control(socket_path(os.environ, os.getuid()), client="hook") as control:
            left = signal.getitimer(signal.ITIMER_REAL)[0]
            params = {
                **prompt._asdict(),
                "mute": not answer("x"),
                "patience": round(max(left - _SAYING, _SAYING), 3),
            }
            context = control.call("hook", params).get("context", "")
        if printed := answer(context) if context else "":
            sys.stdout.write(printed + "\n")
            sys.stdout.flush()
    except (OSError, ValueError, RecursionError, ControlError, DaemonDownError):
        # Open: the prompt goes on as if capd were not there.
        return 0
    return 0


def _input() -> bytes:
    """Return what the client wrote, or nothing where it is longer than a prompt can be."""
    data = sys.stdin.buffer.read(LONGEST_INPUT_BYTES)
    # A client may take it ill that its pipe is closed before it has written all.
    while len(data) == LONGEST_INPUT_BYTES and sys.stdin.buffer.read(_CHUNK_BYTES):
        pass
    return data


def _give_up(*_: object) -> None:
    # Without cleaning up: whatever it hangs in, the editor waits no longer.
    os._exit(0)
