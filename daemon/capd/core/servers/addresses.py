"""Chooses between several URLs of one server: which to try next, and when to go back.

    the first address whose back-off is over ──it fails──> backed off, longer after each failure
                                             ──it serves──> no back-off

The order is that of the definition. A start goes back to an earlier address as soon as its back-off
is over. A running connection is never moved. If all addresses are backed off, the one whose
back-off ends first is tried.

Pure: callers pass `now`, in seconds of any monotonic clock, and the jitter.
"""

from collections.abc import Collection

from capd.core.servers.restarts import Backoff

FIRST_BACKOFF = 5.0
LAST_BACKOFF = 300.0
"""A failed address is not tried for `FIRST_BACKOFF` seconds, and after further failures for at most
`LAST_BACKOFF` seconds: each attempt at a dead address may cost a session `PATIENCE` seconds."""
PATIENCE = 8.0
"""Seconds for an address to become ready if there is another one to try. A session waits 30 s for a
server, which is enough for three addresses."""

_BACKOFF = Backoff(FIRST_BACKOFF, LAST_BACKOFF)


class Addresses:
    """The URLs of one server, by index in its definition, and the failures of each."""

    def __init__(self, count: int) -> None:
        """Create it for a server with `count` URLs, at least one."""
        if count < 1:
            raise ValueError("a server has at least one address")
        self._failures = [0] * count
        self._not_before = [float("-inf")] * count

    def choose(self, now: float, tried: Collection[int] = ()) -> int | None:
        """Return the index of the URL to try at `now`; None if all are in `tried`.

        `tried` are the indexes of the URLs that were tried in this start.
        """
        rest = [at for at in range(len(self._failures)) if at not in tried]
        usable = [at for at in rest if self._not_before[at] <= now]
        if usable:
            return usable[0]
        return min(rest, key=lambda at: self._not_before[at], default=None)

    def failed(self, at: int, now: float, jitter: float) -> None:
        """Note that the URL with the index `at` could not be used, or failed a call.

        Its next try is delayed; `jitter`, in [0, 1), spreads the delays.
        """
        self._failures[at] += 1
        self._not_before[at] = now + _BACKOFF.delay(self._failures[at], jitter)

    def served(self, at: int) -> None:
        """Note that the URL with the index `at` has answered the handshake."""
        self._failures[at] = 0
        self._not_before[at] = float("-inf")
