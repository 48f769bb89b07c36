"""Saves sessions shortly after they change, and restores them from their saved records."""

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import structlog
import trio

from capd.actors.session.parts import SessionParts
from capd.core.errors import described
from capd.core.sessions.session_record import SessionRecord, recorded, restore
from capd.runtime.saver import Saver, not_saved
from capd_protos.types import ServerIdentity, SessionKey

SAVE_PAUSE = 0.1
"""Seconds from a change to its save, so that all changes of a turn are saved together."""
SAVE_AGAIN = 3600.0
"""Seconds after which every open session is saved again. A record is too old after 24 hours."""
LOOK_AT_CLOCK = 60.0
MOST_NAMED = 5

log = structlog.get_logger(actor="curator")


class SessionStore(Protocol):
    """Saves, loads and removes session records."""

    async def load(self, key: SessionKey) -> SessionRecord | None:
        """Return the saved record of `key`; None if there is none.

        Raises:
            OSError: it cannot be read now, and may be readable later.
        """
        ...

    async def save(self, record: SessionRecord) -> bool:
        """Save `record`; return whether that worked."""
        ...

    async def forget(self, prefix: str) -> None:
        """Remove the records of sessions whose keys begin with `prefix`."""
        ...

    async def sweep(self) -> None:
        """Remove saved records of sessions that are older than the retention time."""
        ...


class SessionSaver(Saver[SessionKey]):
    """Saves each session a moment after it changed."""

    def __init__(
        self,
        store: SessionStore,
        record: Callable[[SessionKey], SessionRecord | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create it.

        `record` returns what has to be saved of a session; None if the session no longer exists.
        `now` returns the time in seconds since the epoch.
        """
        super().__init__(self._save_record, pause=SAVE_PAUSE)
        self._store = store
        self._record = record
        self._now = now

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

    async def save_again(self, keys: Callable[[], Iterable[SessionKey]]) -> None:
        """Until cancelled, save the sessions in `keys()` every hour, also without a change.

        Otherwise the record of a session that is open for days would be too old for a new daemon.
        """
        saved_at = self._now()
        while True:
            # Short pauses, because a pause does not count time in which the machine is suspended.
            await trio.sleep(LOOK_AT_CLOCK)
            if not 0 <= self._now() - saved_at < SAVE_AGAIN:
                saved_at = self._now()
                for key in keys():
                    self.changed(key)

    async def _save_record(self, key: SessionKey) -> bool:
        try:
            record = self._record(key)
            return record is None or await self._store.save(record)
        except Exception as error:  # noqa: BLE001 - the boundary: other sessions are saved too
            log.error("task_failed", task="save", session=key, **described(error))
            return False


class SessionSnapshot:
    """Makes the record that is saved of a session, and restores the session from it."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._context = parts.context

    def record(self, resume: str) -> SessionRecord:
        """Return what has to be saved of the session.

        A client that sends the token `resume` may take the session over.
        """
        context = self._context
        parts, subscribed = self._parts, dict[str, ServerIdentity]()
        if parts.is_made("activation"):
            subscribed = parts.activation.leases.subscribed.among(context.connection.subscriptions)
        record = recorded(context.place.key, context.state, resume, time.time(), subscribed)
        view = context.view
        # A part that is not made has nothing to save.
        fields: dict[str, Any] = {}
        if parts.is_made("requests"):
            requests = parts.requests
            fields = {"tasks": requests.tasks.saved(), "apps": requests.apps.saved()}
        if parts.is_made("conversations"):
            fields |= parts.conversations.saved_fields()
        return msgspec.structs.replace(
            record, is_routed=view.own_routing, view=view.saved(), **fields
        )

    def restore(self, record: SessionRecord, *, is_same_client: bool) -> None:
        """Restore the session from a record.

        Conversations, subscriptions, tasks and apps are restored only for the same client.
        """
        context = self._context
        restore(record, context.state)
        context.view.own_routing = record.is_routed
        if is_same_client:
            parts = self._parts
            parts.conversations.restore(record)
            context.connection.subscriptions.update(dict.fromkeys(record.subscriptions))
            parts.activation.leases.subscribed.restore(record.subscriptions)
            parts.requests.drop_denied()
            parts.requests.tasks.restore(record.tasks)
            parts.requests.apps.restore(record.apps)
        structlog.get_logger(actor="curator", session=context.place.key).info(
            "session_restored", active=len(context.state.active.activations)
        )
