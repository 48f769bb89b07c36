"""How long notes are kept: by age, and fewer where they take too much room."""

from dataclasses import dataclass

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds of the ledger."""

    days: float = 90.0
    size_bytes: int = 128 << 20

    def keep_since(self, now: float) -> float:
        """Return the time, in seconds since the epoch, before which notes go."""
        return now - self.days * DAY

    def share_to_drop(self, size_bytes: int) -> float:
        """Return which share of the notes, the oldest, goes so that the file is below its bound.

        A tenth more than needed, so that the next note does not make it necessary again.
        """
        if size_bytes <= self.size_bytes:
            return 0.0
        return min(1.0, 1.0 - 0.9 * self.size_bytes / size_bytes)
