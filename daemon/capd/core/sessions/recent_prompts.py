"""Recognises a prompt that was received before: two hooks may send the same one.

VS Code and Cursor run the hooks of Claude Code's settings beside their own (docs/design/clients.md,
finding 12), and a project may have a hook that the user has as well. All of them run when the
prompt is sent. If the client gives the prompt an id, equal ids are one prompt. Otherwise the same
words in one conversation are one prompt if they come within `TOGETHER`.
"""

TOGETHER = 3.0
"""Seconds between the hooks of one prompt on a busy machine. The model's answer takes at least as
long, so the same words after it are another prompt."""
_KEPT = 4


class RecentPrompts:
    """The last prompts of one session. Only a hash of their text is kept."""

    def __init__(self) -> None:
        # No deque: an empty one is 600 bytes, and most sessions hear of no prompt.
        self._heard: tuple[tuple[int, str, float], ...] = ()

    def is_again(self, text: str, turn: str, now: float) -> bool:
        """Note this prompt; return whether it came before. `turn` is the client's id for it."""
        words = hash(text)
        for heard, name, at in self._heard:
            if heard != words:
                continue
            if (turn and turn == name) or (not (turn and name) and now - at <= TOGETHER):
                return True
        self._heard = (*self._heard, (words, turn, now))[-_KEPT:]
        return False
