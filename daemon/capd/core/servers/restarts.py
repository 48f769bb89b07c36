"""Limits how often, and how soon, something that failed may be started again.

Pure: callers pass `now`, in seconds of any monotonic clock, and the jitter.
"""


class RestartIntensity:
    """Allows at most `limit` restarts within any `window` seconds.

    The defaults are those of actors, 3 in 5 s. Servers have 4 in 60 s: the fifth failure is one too
    many (docs/design/processes.md).
    """

    def __init__(self, limit: int = 3, window: float = 5.0) -> None:
        self._limit = limit
        self._window = window
        self._restarts: list[float] = []

    def record(self, now: float) -> bool:
        """Note a restart at `now`; return whether it may happen.

        A restart exactly `window` seconds ago has left the window. A refused restart counts like
        any other: refusing does not shorten the wait.
        """
        recent = [at for at in self._restarts if now - at < self._window]
        # Only the newest `limit` + 1 decide; older ones cannot change an answer.
        self._restarts = [*recent, now][-(self._limit + 1) :]
        return len(self._restarts) <= self._limit


class Backoff:
    """Computes how long to wait before the next attempt: longer after each failure in a row.

    The wait begins at `first` seconds, is multiplied by `factor` for each failure, and is at most
    `last` seconds (docs/design/processes.md).
    """

    def __init__(self, first: float = 0.5, last: float = 60.0, factor: float = 2.0) -> None:
        if not (0 < first <= last and factor > 1):
            raise ValueError(f"no growing wait from {first} to {last} s by {factor}")
        self._first = first
        self._last = last
        self._factor = factor

    def delay(self, failures: int, jitter: float) -> float:
        """Return the seconds to wait after `failures` failures in a row.

        `jitter` in [0, 1) chooses a point between this wait and the next longer one, so that
        servers that failed at the same time do not start again at the same time.

        Raises:
            ValueError: `failures` is less than 1.
        """
        if failures < 1:
            raise ValueError("a back-off follows at least one failure")
        floor = max(self._first, self._last / self._factor)
        step = self._first
        for _ in range(failures - 1):
            # A loop that ends at the cap, because `factor ** failures` can overflow a float.
            if step >= floor:
                break
            step *= self._factor
        step = min(step, floor)
        top = min(step * self._factor, self._last)
        return step + jitter * (top - step)
