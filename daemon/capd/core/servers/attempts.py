"""Decides when a server that failed may be started again (docs/design/processes.md).

    fine ──failure──> backing off ──5 failures in 60 s──> failed: one attempt a minute
      ^                   │                                  │
      └── 60 s of service, or a person did something ────────┘
    parked: no attempt until a person did something

Pure: callers pass `now` (any monotonic seconds) and the jitter.
"""

from dataclasses import dataclass, field

from capd.core.servers.restarts import Backoff, RestartIntensity

MOST_FAILURES = 5
WINDOW = 60.0
STEADY = 60.0
"""Seconds of service after which earlier failures are forgotten."""
PROBE_AFTER = 60.0

_BACKOFF = Backoff()


def _intensity() -> RestartIntensity:
    return RestartIntensity(limit=MOST_FAILURES - 1, window=WINDOW)


@dataclass(slots=True)
class Attempts:
    """The recent failures of one server, and when it may be started again."""

    failures: int = 0
    """Failures in a row since it last served for `STEADY` seconds."""
    not_before: float = 0.0
    """The earliest time of the next attempt, on the clock of `now`."""
    is_failed: bool = False
    """Whether the server failed so often that it is started once a minute at most."""
    is_parked: bool = False
    """Whether the server stays stopped until a person has done something about the cause."""
    last_error: str = ""
    _window: RestartIntensity = field(default_factory=_intensity)

    def failed(
        self, reason: str, now: float, *, served: float | None, jitter: float, parks: bool = False
    ) -> None:
        """Note a failure of the server at `now`, and compute when it may be started again.

        `served` is the number of seconds for which the server was ready; None if it never was.
        `jitter` is in [0, 1). `parks` says that no attempt makes sense until a person acts.
        """
        if served is not None and served >= STEADY:
            self.failures = 0
            self.is_failed = False
        self.failures += 1
        self.last_error = reason
        self.is_parked = parks
        # A failed server stays failed: its attempts are a minute apart, so by the window alone they
        # would come sooner again.
        self.is_failed = not self._window.record(now) or self.is_failed
        delay = PROBE_AFTER if self.is_failed else _BACKOFF.delay(self.failures, jitter)
        self.not_before = now + delay

    def wait(self, now: float) -> float:
        """Return the seconds until the next start; infinity if a person has to act first."""
        return float("inf") if self.is_parked else max(0.0, self.not_before - now)

    def forgive(self) -> None:
        """Forget all failures, because a person did something about the cause."""
        self.failures, self.not_before = 0, 0.0
        self.is_failed = self.is_parked = False
        self._window = _intensity()

    def refusal(self, now: float) -> str:
        """Return why the server is not started at `now`: a clause without the server's name."""
        if self.is_parked:
            return f"{self.last_error}; until then it is not tried again"
        return (
            f"it failed {self.failures} times in a row, the last time because "
            f"{self.last_error}; it is tried again in {self.wait(now):.0f} s"
        )
