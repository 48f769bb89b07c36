"""The saved record of one session, from which another daemon can restore it."""

import time

import msgspec
import structlog

from capd.actors.session.parts import SessionParts
from capd.core.sessions.session_record import SessionRecord, recorded, restore


class SessionSnapshot:
    """Creates a session's saved record, and restores the session from it."""

    def __init__(self, parts: SessionParts) -> None:
        self._context = parts.context
        self._conversations = parts.conversations
        self._requests = parts.requests
        self._subscribed = parts.activation.leases.subscribed

    def record(self, resume: str) -> SessionRecord:
        """Return the session's record; a client with the token `resume` may take it over."""
        context = self._context
        subscribed = self._subscribed.among(context.connection.subscriptions)
        record = recorded(context.place.key, context.state, resume, time.time(), subscribed)
        view = context.view
        return msgspec.structs.replace(
            record,
            is_routed=view.own_routing,
            view=view.saved(),
            tasks=self._requests.tasks.saved(),
            apps=self._requests.apps.saved(),
            **self._conversations.saved_fields(),
        )

    def restore(self, record: SessionRecord, *, is_same_client: bool) -> None:
        """Restore the session from a record.

        Conversations, subscriptions, tasks and apps are restored only for the same client.
        """
        context = self._context
        restore(record, context.state)
        context.view.own_routing = record.is_routed
        if is_same_client:
            self._conversations.restore(record)
            context.connection.subscriptions.update(record.subscriptions)
            self._subscribed.restore(record.subscriptions)
            self._requests.drop_denied()
            self._requests.tasks.restore(record.tasks)
            self._requests.apps.restore(record.apps)
        structlog.get_logger(actor="curator", session=context.place.key).info(
            "session_restored", active=len(context.state.active.activations)
        )
