"""Writes sessions down a moment after they change, so that their keys find them again."""

from collections.abc import Callable
from typing import Protocol

import trio

from capd.core.sessions.session_record import SessionRecord
from capd_protos.types import SessionKey

SAVE_TIMEOUT = 2.0
SAVE_PAUSE = 0.1
"""Seconds from a change to its writing down: what a turn changes is one record."""


class SessionStore(Protocol):
    """Where sessions are written down."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return what is kept of `key`, if anything is."""
        ...

    async def save(self, record: SessionRecord) -> None:
        """Keep `record`."""
        ...

    async def sweep(self) -> None:
        """Remove what is past its retention."""
        ...


class SessionKeeper:
    """What changed and is not written down yet."""

    def __init__(
        self, store: SessionStore, record: Callable[[SessionKey], SessionRecord | None]
    ) -> None:
        """`record` returns a session as it is at that moment, None where there is none."""
        self._store = store
        self._record = record
        self._unsaved: dict[SessionKey, None] = {}
        self._has_unsaved = trio.Event()

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
            await self.save_all()

    async def save_all(self) -> None:
        """Write down all that changed."""
        for key in list(self._unsaved):
            await self.save(key)

    async def save(self, key: SessionKey) -> None:
        """Write a session down at once."""
        self._unsaved.pop(key, None)
        record = self._record(key)
        if record is not None:
            await self._store.save(record)
