"""Saves what changes a moment later, again where that failed, and once more at the end.

    changed ──pause──> saved
                 └──failed──> refused ──backoff──> saved

Changes within the pause are one save. Nothing that changed is forgotten before it is saved, also
where the save is cancelled or fails with an exception.
"""

from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import trio

from capd.core.servers.restarts import Backoff

K = TypeVar("K", bound=Hashable)

FLUSH_TIMEOUT = 2.0
"""Seconds that the last save at the end of a run may take."""
BACKOFF = Backoff(first=2.0, last=20.0)
"""Between saves that fail, as on a full disk. It ends at ten seconds: whoever has made room, and
looks at `capd status`, sees soon that all is well."""


def not_saved(what: str, which: str = "") -> str:
    """Return what `capd status` says while a save fails; `which` of it, where that is known."""
    return (
        f"{what} cannot be written down at present{f': {which}' if which else ''};"
        " look for room on the disk of the state folder, and in capd logs"
    )


class Saver(Generic[K]):
    """What changed and is not saved yet, by key; a single file has one key."""

    def __init__(self, save: Callable[[K], Awaitable[bool]], *, pause: float) -> None:
        """`save` saves what `key` is at that moment and tells whether that is kept.

        `pause` is the seconds from a change to its save.
        """
        self._save = save
        self._pause = pause
        # In the order of the changes.
        self._unsaved: dict[K, None] = {}
        self._refused: dict[K, None] = {}
        self._has_unsaved = trio.Event()

    @property
    def refused(self) -> list[K]:
        """What could not be saved when that was last tried."""
        return list(self._refused)

    def changed(self, key: K) -> None:
        """Have `key` saved soon."""
        self._unsaved[key] = None
        self._has_unsaved.set()

    async def run(self) -> None:
        """Save what changes until cancelled, and then what is left."""
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
        """Save all that changed, within a bound, also in what is being cancelled."""
        with trio.CancelScope(shield=True), trio.move_on_after(FLUSH_TIMEOUT):
            await self.save_all()

    async def save_all(self) -> bool:
        """Save all that changed; tell whether all of it is kept."""
        return all([await self.save(key) for key in list(self._unsaved)])

    async def save(self, key: K) -> bool:
        """Save `key` at once, and tell whether it is kept; else it is saved again later."""
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
