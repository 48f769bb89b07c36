"""Writes sessions down a moment after they change, so that their keys find them again."""

from collections.abc import Callable
from typing import Protocol

from capd.core.sessions.session_record import SessionRecord
from capd.runtime.saver import Saver, not_saved
from capd_protos.types import SessionKey

SAVE_PAUSE = 0.1
"""Seconds from a change to its writing down: what a turn changes is one record."""
MOST_NAMED = 5


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


class SessionSaver(Saver[SessionKey]):
    """What of sessions changed and is not written down yet."""

    def __init__(
        self, store: SessionStore, record: Callable[[SessionKey], SessionRecord | None]
    ) -> None:
        """`record` returns a session as it is at that moment, None where there is none."""
        super().__init__(self._save_record, pause=SAVE_PAUSE)
        self._store = store
        self._record = record

    @property
    def problem(self) -> str:
        """Why a restart would not find all that sessions have, or nothing."""
        if not self.refused:
            return ""
        more = len(self.refused) - MOST_NAMED
        which = sorted(self.refused)[:MOST_NAMED] + ([f"{more} more"] if more > 0 else [])
        return not_saved("what sessions have", ", ".join(which))

    async def run(self) -> None:
        """Remove what is old, then write down what changes, until cancelled."""
        await self._store.sweep()
        await super().run()

    async def _save_record(self, key: SessionKey) -> bool:
        record = self._record(key)
        return record is None or await self._store.save(record)
