"""How long the ledger, which records calls, keeps rows: by age, and fewer if space is short."""

from dataclasses import dataclass

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How old the ledger's rows may get, and how large its file."""

    days: float = 90.0
    size_bytes: int = 128 << 20

    def keep_since(self, now: float) -> float:
        """Return the time, in seconds since the epoch, before which rows are deleted."""
        return now - self.days * DAY

    def share_to_drop(self, size_bytes: int) -> float:
        """Return which share of the rows to delete, oldest first, to keep the file in its bound.

        The file shrinks to 90 % of its bound, so that the next row does not exceed it again.
        """
        if size_bytes <= self.size_bytes:
            return 0.0
        return min(1.0, 1.0 - 0.9 * self.size_bytes / size_bytes)
