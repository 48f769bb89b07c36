"""Sends the text of a prompt to the daemon, within the time that an editor can wait.

A turn is one message of the user, together with what capd decides on it.
"""

import threading
import time
from typing import Any

from capd_client.acp.dialogue import Prompt
from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.shim.replay import NOT_FOUND

BUDGET = 0.3
"""The most seconds that a prompt is held back for the daemon's answer. A turn that takes longer
goes on, and the model gets its tools one request later."""
_PATIENCE = 20.0
"""Seconds to wait for a session that its agent opens only after the first prompt."""
_TURN_TIMEOUT = 120.0
_PAUSE = 0.02
_RELIST = 0.06
"""Seconds to wait for an agent that was told of new tools: it lists them again within 8 to 26 ms.
"""
_MOST_AT_ONCE = 8
"""The most turns that wait for an answer at a time. A daemon that hangs gets no more."""
_SAYING = 0.03
"""Seconds of the budget that are kept for passing the answer from the daemon to the agent."""
_LEAST = 0.05
"""If fewer seconds are left, the daemon is told that its answer will not be read."""


class Turns:
    """Sends users' messages to the daemon whose socket is at `path`.

    A turn is one message, together with what capd decides on it.
    """

    def __init__(self, path: str, budget: float = BUDGET) -> None:
        self._path = path
        self._budget = budget
        self._free = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def context(self, prompt: Prompt) -> str:
        """Send a prompt to the daemon; return the daemon's text for the model, empty if too late.

        It is empty as well if `_MOST_AT_ONCE` turns are waiting already.
        """
        if not self._free.acquire(blocking=False):
            return ""
        until = time.monotonic() + self._budget
        turn = _PromptTurn(self._path, prompt, until)
        threading.Thread(target=self._take, args=(turn,), daemon=True).start()
        if not turn.is_done.wait(self._budget):
            return ""
        if turn.has_added:
            time.sleep(max(0.0, min(_RELIST, until - time.monotonic())))
        return turn.context

    def _take(self, turn: "_PromptTurn") -> None:
        try:
            turn.take()
        finally:
            self._free.release()
            turn.is_done.set()


class _PromptTurn:
    def __init__(self, path: str, prompt: Prompt, until: float) -> None:
        self._path = path
        self._prompt = prompt
        self._until = until
        self.is_done = threading.Event()
        self.has_added = False
        self.context = ""

    def take(self) -> None:
        """Send the turn once the session exists.

        If anything fails, the prompt goes on without a text.
        """
        give_up_at = time.monotonic() + _PATIENCE
        try:
            with Control(self._path, client="acp", timeout=_TURN_TIMEOUT) as control:
                while True:
                    try:
                        turn = control.call("turn", self._params())
                        break
                    except ControlError as error:
                        if error.code != NOT_FOUND or time.monotonic() > give_up_at:
                            return
                    time.sleep(_PAUSE)
        except (DaemonDownError, ControlError, OSError):
            return
        changed = turn.get("changed")
        self.has_added = isinstance(changed, dict) and bool(changed.get("added"))
        context = turn.get("context")
        self.context = context if isinstance(context, str) else ""

    def _params(self) -> dict[str, Any]:
        left = self._until - time.monotonic() - _SAYING
        return {
            "text": self._prompt.text,
            "session": self._prompt.session,
            "mute": left < _LEAST,
            "patience": round(max(left, _LEAST), 3),
        }
