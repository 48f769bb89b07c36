"""A steady rate with a burst: how long the next one has to wait so that others get their share."""


class Rate:
    """Allows `burst` at once, and then `per_second`; time is the caller's."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._step = 1.0 / per_second
        self._slack = burst * self._step
        # When everything that was let through would be over at the steady rate.
        self._due_at = float("-inf")

    def wait(self, now: float) -> float:
        """Count one more; return the seconds for which it has to wait."""
        self._due_at = max(self._due_at, now) + self._step
        return max(0.0, self._due_at - now - self._slack)
