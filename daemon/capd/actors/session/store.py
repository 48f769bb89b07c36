"""Saves sessions shortly after they change, so that another daemon can restore them."""

from collections.abc import Callable
from typing import Protocol

import structlog

from capd.core.errors import described
from capd.core.sessions.session_record import SessionRecord
from capd.runtime.saver import Saver, not_saved
from capd_protos.types import SessionKey

SAVE_PAUSE = 0.1
"""Seconds from a change to its save, so that all changes of a turn are saved at once."""
MOST_NAMED = 5

log = structlog.get_logger(actor="curator")


class SessionStore(Protocol):
    """Where sessions are saved."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return the saved record of `key`; None if there is none."""
        ...

    async def save(self, record: SessionRecord) -> bool:
        """Save `record`; return whether that worked."""
        ...

    async def forget(self, prefix: str) -> None:
        """Remove the records of sessions whose keys begin with `prefix`."""
        ...

    async def sweep(self) -> None:
        """Remove records that are older than the retention time."""
        ...


class SessionSaver(Saver[SessionKey]):
    """Saves the sessions that changed."""

    def __init__(
        self, store: SessionStore, record: Callable[[SessionKey], SessionRecord | None]
    ) -> None:
        """`record` returns the current record of a session; None if it no longer exists."""
        super().__init__(self._save_record, pause=SAVE_PAUSE)
        self._store = store
        self._record = record

    @property
    def problem(self) -> str:
        """Why a restart would lose some changes; empty if it would not."""
        if not self.refused:
            return ""
        more = len(self.refused) - MOST_NAMED
        which = sorted(self.refused)[:MOST_NAMED] + ([f"{more} more"] if more > 0 else [])
        return not_saved("what sessions have", ", ".join(which))

    async def run(self) -> None:
        """Remove old records, then save changes until cancelled."""
        await self._store.sweep()
        await super().run()

    async def _save_record(self, key: SessionKey) -> bool:
        try:
            record = self._record(key)
            return record is None or await self._store.save(record)
        except Exception as error:  # noqa: BLE001 - the boundary: other sessions are saved too
            log.error("task_failed", task="save", session=key, **described(error))
            return False
