"""Turns whose prompt hook was told to ask again later, because they wait for the model.

    begun ──decided, or its hook may not wait──> answered
      └──undecided after `FIRST_LOOK`──> held ──asked for again──> answered
                                          └──not within `RETURN_TIMEOUT`, or `MOST_HELD`
                                             others came since──> not delivered

A hook ends by itself after a quarter of a second, so that a daemon that hangs does not block the
editor. The answer `held` tells the hook that the daemon is alive and that it is worth waiting.

A held turn switches its tools on immediately. Its texts for the model wait until the hook has asked
again, or the turn is given up (`TurnContext.is_claimed`). Otherwise the texts of a turn that ends
before its hook has asked again would count as delivered, although the model never read them.
"""

from collections.abc import Awaitable, Callable

import trio

from capd.actors.session.turns import TurnContext
from capd_protos import curator as messages

FIRST_LOOK = 0.1
"""Seconds to wait for the decision before a turn is held. A loaded model takes 0.01 to 0.017."""
RETURN_TIMEOUT = 1.0
"""Seconds within which a hook has to ask again for its held turn."""
MOST_HELD = 4


class TurnInProgress:
    """A turn that a prompt hook has sent. It continues even if its hook stops waiting."""

    def __init__(self, text: str, turn: str, context: TurnContext) -> None:
        """Create it for the message `text`. `turn` is the client's id for the prompt."""
        self.prompt = (text, turn)
        self.context = context
        self.taken: messages.TurnTaken | None = None
        self.is_over = trio.Event()

    async def run(self, take: Callable[[], Awaitable[messages.TurnTaken]]) -> None:
        """Run the turn by calling `take`, and store its result.

        The turn's hook waits for the result, or asks again for it if the turn is held.
        """
        try:
            self.taken = await take()
        finally:
            self.is_over.set()
            self.context.is_decided.set()


class HeldTurns:
    """The turns of one session that are held: capd has told their hooks to ask again later.

    At most `MOST_HELD` turns are held.
    """

    def __init__(self) -> None:
        self._held: list[TurnInProgress] = []

    def add(self, turn: TurnInProgress) -> None:
        """Hold `turn` until its hook asks again. `keep` limits how long that may take."""
        turn.context.is_claimed = trio.Event()
        self._held.append(turn)

    async def keep(self, turn: TurnInProgress) -> None:
        """Wait `RETURN_TIMEOUT` seconds for a turn's hook to ask again, then give the turn up.

        If more than `MOST_HELD` turns are held, give up the oldest ones at once.
        """
        for oldest in self._held[:-MOST_HELD]:
            self._give_up(oldest)
        await trio.sleep(RETURN_TIMEOUT)
        self._give_up(turn)

    def _give_up(self, turn: TurnInProgress) -> None:
        """Give up a held turn whose hook has not asked again: its text counts as not delivered."""
        if turn in self._held:
            self._held.remove(turn)
            turn.context.is_delivered = False
            _release_waiters(turn)

    def returned(self, text: str, turn: str) -> TurnInProgress | None:
        """Return the held turn with this message and id, and stop holding it.

        None if none is held.
        """
        for held in self._held:
            if held.prompt == (text, turn):
                self._held.remove(held)
                _release_waiters(held)
                return held
        return None


def _release_waiters(turn: TurnInProgress) -> None:
    """Wake the tasks that wait to know whether a turn's text will be delivered."""
    if turn.context.is_claimed is not None:
        turn.context.is_claimed.set()
