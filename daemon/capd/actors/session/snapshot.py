"""The saved record of one session, from which another daemon can restore it."""

import time
from typing import Any

import msgspec
import structlog

from capd.actors.session.parts import SessionParts
from capd.core.sessions.session_record import SessionRecord, recorded, restore
from capd_protos.types import ServerIdentity


class SessionSnapshot:
    """Creates a session's saved record, and restores the session from it."""

    def __init__(self, parts: SessionParts) -> None:
        self._parts = parts
        self._context = parts.context

    def record(self, resume: str) -> SessionRecord:
        """Return the session's record; a client with the token `resume` may take it over."""
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
