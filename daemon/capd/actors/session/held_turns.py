"""Turns whose hook was asked to come again, because they wait for the model.

    begun ──decided, or nobody may wait──> answered
      └──undecided after `FIRST_LOOK`──> held ──asked for again──> answered
                                          └──not within `RETURN_TIMEOUT`, or `MOST_HELD`
                                             others came since──> told to nobody

A hook ends by itself after a quarter of a second, so that a daemon that hangs stops no editor. The
answer `held` tells it that the daemon is alive, and that the wait is worth it.
"""

from collections.abc import Awaitable, Callable

import trio

from capd.actors.session.turns import TurnContext
from capd_protos import curator as messages

FIRST_LOOK = 0.1
"""Seconds in which a turn is decided by a loaded model: it takes 10 to 17 ms."""
RETURN_TIMEOUT = 1.0
"""Seconds in which a hook that was asked to come again does so."""
MOST_HELD = 4


class TurnInProgress:
    """A hook's turn that has begun. It goes on, whether its hook waits or not."""

    def __init__(self, text: str, turn: str, context: TurnContext) -> None:
        """`turn` is the client's id for the prompt."""
        self.prompt = (text, turn)
        self.context = context
        self.taken: messages.TurnTaken | None = None
        self.is_over = trio.Event()

    async def run(self, take: Callable[[], Awaitable[messages.TurnTaken]]) -> None:
        """Take the turn."""
        try:
            self.taken = await take()
        finally:
            self.is_over.set()
            self.context.is_decided.set()


class HeldTurns:
    """The held turns of one session."""

    def __init__(self) -> None:
        self._held: list[TurnInProgress] = []

    async def hold(self, turn: TurnInProgress) -> None:
        """Keep `turn` for its hook; when that does not come, its words are told to nobody."""
        self._held.append(turn)
        for oldest in self._held[:-MOST_HELD]:
            self._give_up(oldest)
        await trio.sleep(RETURN_TIMEOUT)
        self._give_up(turn)

    def _give_up(self, turn: TurnInProgress) -> None:
        """Stop keeping a turn that nobody came back for: its words count as not delivered."""
        if turn in self._held:
            self._held.remove(turn)
            turn.context.is_delivered = False

    def returned(self, text: str, turn: str) -> TurnInProgress | None:
        """Return the turn that a hook asks for again; None if it is not held (any more)."""
        for held in self._held:
            if held.prompt == (text, turn):
                self._held.remove(held)
                return held
        return None
