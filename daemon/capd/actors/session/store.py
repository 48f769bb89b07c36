"""Writes sessions down a moment after they change, so that their keys find them again."""

from collections.abc import Callable
from typing import Protocol

import trio

from capd.core.sessions.session_record import SessionRecord
from capd_protos.types import SessionKey

SAVE_TIMEOUT = 2.0
SAVE_PAUSE = 0.1
"""Seconds from a change to its writing down: what a turn changes is one record."""
MOST_NAMED = 5
TRY_AGAIN = 2.0
"""Seconds after which what could not be written, as on a full disk, is written again."""


class SessionStore(Protocol):
    """Where sessions are written down."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return what is kept of `key`, if anything is."""
        ...

    async def save(self, record: SessionRecord) -> bool:
        """Keep `record`, and tell whether it is kept."""
        ...

    async def sweep(self) -> None:
        """Remove what is past its retention."""
        ...


class SessionSaver:
    """What changed and is not written down yet."""

    def __init__(
        self, store: SessionStore, record: Callable[[SessionKey], SessionRecord | None]
    ) -> None:
        """`record` returns a session as it is at that moment, None where there is none."""
        self._store = store
        self._record = record
        self._unsaved: dict[SessionKey, None] = {}
        self._refused: set[SessionKey] = set()
        self._has_unsaved = trio.Event()

    @property
    def problem(self) -> str:
        """Why a restart would not find all that sessions have, or nothing."""
        if not self._refused:
            return ""
        more = len(self._refused) - MOST_NAMED
        which = sorted(self._refused)[:MOST_NAMED] + ([f"{more} more"] if more > 0 else [])
        return (
            f"what sessions have cannot be written down at present: {', '.join(which)};"
            " look for room on the disk of the state folder, and in capd logs"
        )

    def changed(self, key: SessionKey) -> None:
        """Have a session written down soon."""
        self._unsaved[key] = None
        self._has_unsaved.set()

    async def run(self) -> None:
        """Write down what changes, until cancelled."""
        await self._store.sweep()
        while True:
            await self._has_unsaved.wait()
            await trio.sleep(SAVE_PAUSE)
            self._has_unsaved = trio.Event()
            if not await self.save_all():
                await trio.sleep(TRY_AGAIN)
                self._has_unsaved.set()

    async def save_all(self) -> bool:
        """Write down all that changed; tell whether all of it is kept."""
        return all([await self.save(key) for key in list(self._unsaved)])

    async def save(self, key: SessionKey) -> bool:
        """Write a session down at once; one that is not kept is written again later."""
        self._unsaved.pop(key, None)
        record = self._record(key)
        if record is None or await self._store.save(record):
            self._refused.discard(key)
            return True
        self._unsaved[key] = None
        self._refused.add(key)
        return False
