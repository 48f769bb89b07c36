"""Which clients were seen to list again, and which not, over all sessions and daemons.

A client is one version of one program: the next version may do what this one does not. That it
lists again outweighs all else. So many are kept and no more, those that were met last.
"""

from collections.abc import Callable, Sequence

import msgspec

MOST_CLIENTS = 200
_LONGEST = 200
"""Characters of a name or version: a client writes both."""


class Habit(msgspec.Struct, frozen=True):
    """What one version of a client was seen to do."""

    client: str
    version: str
    relists: bool


class Habits:
    """What every client was seen to do."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called when there is something to write down."""
        self._on_change = on_change
        # The one that was met last is the last.
        self._seen: dict[tuple[str, str], bool] = {}

    def seen(self, client: str, version: str = "") -> bool | None:
        """Return what a client was seen to do, None where nothing was seen yet."""
        return self._seen.get((client, version))

    def note(self, client: str, version: str, was_seen: bool | None) -> None:
        """Keep what was seen."""
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
        """Everything, as it is to be written down."""
        return [Habit(*key, relists) for key, relists in self._seen.items()]

    def restore(self, written: Sequence[Habit]) -> None:
        """Take over what was written down."""
        self._seen = {(h.client, h.version): h.relists for h in written[-MOST_CLIENTS:]}
