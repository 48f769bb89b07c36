"""Whether a prompt was handed over before: two hooks of one prompt count once.

VS Code and Cursor run the hooks of Claude Code's settings beside their own (docs/design/clients.md,
finding 12) , and a project may have a hook that the user has as well. All of them are run as the
prompt is sent, and some clients name the prompt; two of the same words in one conversation are one
prompt where the client names it so, and without a name where they come together.
"""

from collections import deque

TOGETHER = 3.0
"""Seconds between the hooks of one prompt, on a machine that has much to do. An answer of a model,
after which the same words would be another prompt, takes as long."""
_KEPT = 4


class RecentPrompts:
    """The last prompts of one session; of their words nothing but a number is kept."""

    def __init__(self) -> None:
        self._heard: deque[tuple[int, str, float]] = deque(maxlen=_KEPT)

    def is_again(self, text: str, turn: str, now: float) -> bool:
        """Tell whether this prompt was heard, and note it; `turn` is the client's name for it."""
        words = hash(text)
        for heard, name, at in self._heard:
            if heard != words:
                continue
            if (turn and turn == name) or (not (turn and name) and now - at <= TOGETHER):
                return True
        self._heard.append((words, turn, now))
        return False
