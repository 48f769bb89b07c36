"""Recognises a prompt that several hooks send, so that it is routed once.

A hook is a program that a client runs for each message of its user, and that passes the message to
capd.

VS Code and Cursor run the hooks of Claude Code's settings beside their own (docs/design/clients.md,
finding 12), and a user and a project may configure the same hook. All of them run when a prompt is
sent. Two messages with the same text are one prompt if the client gives them the same id, or if
one has no id and they come within `TOGETHER` seconds.
"""

TOGETHER = 3.0
"""Seconds within which all hooks of one prompt run, on a busy machine too. A model takes at least
as long to answer, so the same text after its answer is a new prompt."""
_KEPT = 4


class RecentPrompts:
    """The last prompts of one session. Only a hash of their text is kept."""

    def __init__(self) -> None:
        # No deque: an empty one is 600 bytes, and most sessions get no prompt.
        self._prompts: tuple[tuple[int, str, float], ...] = ()

    def is_again(self, text: str, turn: str, now: float) -> bool:
        """Note a user's prompt; return whether another hook has sent it before.

        `turn` is the client's id of the prompt, empty if it has none. `now` is in seconds.
        """
        words = hash(text)
        for earlier, name, at in self._prompts:
            if earlier != words:
                continue
            if (turn and turn == name) or (not (turn and name) and now - at <= TOGETHER):
                return True
        self._prompts = (*self._prompts, (words, turn, now))[-_KEPT:]
        return False
