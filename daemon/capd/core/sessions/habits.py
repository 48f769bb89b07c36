"""Which clients list their tools again after a change, as observed in all sessions so far.

Observations are saved, so they outlive the daemon. Each is about one version of one client, because
the next version may behave differently. One observation that a client lists again outweighs all
others. The 200 clients that were observed last are remembered.
"""

from collections.abc import Callable, Sequence

import msgspec

MOST_CLIENTS = 200
_LONGEST = 200
"""Longer names and versions are not stored: a client writes both."""


class Habit(msgspec.Struct, frozen=True):
    """Whether one version of a client lists its tools again after a change."""

    client: str
    version: str
    relists: bool


class Habits:
    """What was observed of each version of each client: whether it lists again after a change."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """Create it. `on_change` is called whenever `written` has changed."""
        self._on_change = on_change
        # In the order of their last observation.
        self._seen: dict[tuple[str, str], bool] = {}

    def seen(self, client: str, version: str = "") -> bool | None:
        """Return whether a client was seen to list again after a change; None if not yet known."""
        return self._seen.get((client, version))

    def note(self, client: str, version: str, was_seen: bool | None) -> None:
        """Store whether a client was seen to list again; None stores nothing.

        A client that was once seen to list again keeps that entry.
        """
        key = client, version
        if not client or was_seen is None or max(map(len, key)) > _LONGEST:
            return
        before = self._seen.pop(key, None)
        self._seen[key] = was_seen or before is True
        if len(self._seen) > MOST_CLIENTS:
            del self._seen[next(iter(self._seen))]
        if before is not self._seen[key]:
            self._on_change()

    @property
    def written(self) -> list[Habit]:
        """Return everything to save, the latest observation last."""
        return [Habit(*key, relists) for key, relists in self._seen.items()]

    def restore(self, written: Sequence[Habit]) -> None:
        """Restore the observations that `written` returned."""
        self._seen = {(h.client, h.version): h.relists for h in written[-MOST_CLIENTS:]}
