"""A rate limit with a burst."""


class Rate:
    """Allows `burst` events at once, then `per_second` on average. The caller passes `now`."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._step = 1.0 / per_second
        self._slack = burst * self._step
        # The time at which all admitted events would be done at the steady rate.
        self._due_at = float("-inf")

    def wait(self, now: float) -> float:
        """Count an event at `now`, in seconds; return for how many seconds it has to wait."""
        self._due_at = max(self._due_at, now) + self._step
        return max(0.0, self._due_at - now - self._slack)
