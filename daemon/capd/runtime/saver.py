"""Saves changes shortly after they were made, retries failed saves, and saves once at the end.

    changed ──pause──> saved
               └──failed──> refused ──backoff──> saved

Changes within the pause are saved together. A change is forgotten only once it is saved, even if
the save is cancelled or raises.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from capd.core.servers.restarts import Backoff

K = TypeVar("K", bound=Hashable)

FLUSH_TIMEOUT = 2.0
"""Seconds for the last save at the end of a run."""
BACKOFF = Backoff(first=2.0, last=20.0)
"""The wait after failed saves, as on a full disk. The saver calls `delay` without jitter, so the
wait is at most half of `last`: ten seconds. So `capd status` is right again soon after somebody has
made room."""


def not_saved(what: str, which: str = "") -> str:
    """Return the line of `capd status` for failing saves of `what`; `which` names parts of it."""
    return (
        f"{what} cannot be written down at present{f': {which}' if which else ''};"
        " look for room on the disk of the state folder, and in capd logs"
    )


class Saver(Generic[K]):
    """Saves states after they have changed. Each state has a key; a single file has one key."""

    def __init__(self, save: Callable[[K], Awaitable[bool]], *, pause: float) -> None:
        """Create a saver whose function `save` writes the present state of a key.

        `save` returns whether it succeeded. `pause` is the number of seconds from a change to its
        save.
        """
        self._save = save
        self._pause = pause
        # In the order of the changes.
        self._unsaved: dict[K, None] = {}
        self._refused: dict[K, None] = {}
        self._has_unsaved = trio.Event()

    @property
    def refused(self) -> list[K]:
        """The keys whose last save failed."""
        return list(self._refused)

    def changed(self, key: K) -> None:
        """Note that the state of `key` has changed, so that it is saved after the pause."""
        self._unsaved[key] = None
        self._has_unsaved.set()

    async def run(self) -> None:
        """Save changes until cancelled, and once more at the end."""
        failures = 0
        try:
            while True:
                await self._has_unsaved.wait()
                await trio.sleep(self._pause)
                self._has_unsaved = trio.Event()
                failures = 0 if await self.save_all() else failures + 1
                if failures:
                    await trio.sleep(BACKOFF.delay(failures, 0.0))
        finally:
            await self.flush()

    async def flush(self) -> None:
        """Save all changes within a time limit, even while being cancelled."""
        with trio.CancelScope(shield=True), trio.move_on_after(FLUSH_TIMEOUT):
            await self.save_all()

    async def save_all(self) -> bool:
        """Save all changes; return whether all saves worked."""
        return all([await self.save(key) for key in list(self._unsaved)])

    async def save(self, key: K) -> bool:
        """Save `key` at once; return whether that worked. If not, it is saved again later."""
        self._unsaved.pop(key, None)
        is_kept = False
        try:
            is_kept = await self._save(key)
        finally:
            if is_kept:
                self._refused.pop(key, None)
            else:
                self._refused[key] = None
                self.changed(key)
        return is_kept
