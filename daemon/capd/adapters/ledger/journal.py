"""The queue of notes for the ledger, which records calls. Adding a note never waits."""

from collections import deque

import trio

from capd.core.records.tally import Tally
from capd_protos.ledger import Note

MOST_WAITING = 20_000
"""The most notes in the queue: about 10 MB. If the disk stays full, the oldest are dropped."""


class Journal:
    """A bounded queue with one reader. `note` is called on every tool call: it only appends."""

    def __init__(self, most: int = MOST_WAITING, *, is_kept: bool = True) -> None:
        """Create an empty queue for at most `most` notes.

        If `is_kept` is False, notes are counted and dropped.
        """
        self._notes: deque[Note] = deque(maxlen=most)
        self._most = most
        self._is_kept = is_kept
        self._has_some = trio.Event()
        self.tally = Tally()
        """Counts of everything noted since the daemon started."""
        self.dropped = 0
        """How many notes were dropped for newer ones."""

    def __bool__(self) -> bool:
        """Return True even if nothing waits, so that `journal or ...` makes no second journal."""
        return True

    def __len__(self) -> int:
        """Return the number of waiting notes."""
        return len(self._notes)

    def note(self, note: Note) -> None:
        """Add a note to the queue, without waiting. If the queue is full, drop the oldest note."""
        self.tally.note(note)
        if not self._is_kept:
            return
        if len(self._notes) == self._most:
            self.dropped += 1
        self._notes.append(note)
        self._has_some.set()

    async def wait(self) -> None:
        """Wait until there is a note."""
        while not self._notes:
            self._has_some = trio.Event()
            await self._has_some.wait()

    def take(self) -> list[Note]:
        """Remove and return all waiting notes, the oldest first."""
        notes = list(self._notes)
        self._notes.clear()
        return notes

    def put_back(self, notes: list[Note]) -> None:
        """Put back notes that could not be written, before newer ones."""
        newer = list(self._notes)
        kept = [*notes, *newer][-self._most :]
        self.dropped += len(notes) + len(newer) - len(kept)
        self._notes = deque(kept, maxlen=self._most)
        self._has_some.set()
