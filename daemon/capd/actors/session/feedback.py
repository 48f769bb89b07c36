"""Observes what follows a session's messages, and sends it to the registry as labels.

A label records that a person switched a capability on or off, or that the model called one of
its tools.

This happens only if `[routing] learn` is on for the session. It does not happen for a session that
another session opened, because the messages of such a session come from a model.
"""

import time
from collections.abc import Iterable

from capd.actors.session.services import SessionContext
from capd.core.routing.feedback import Feedback
from capd.core.routing.learning import project_mark
from capd_protos.curator import RoutingTaught
from capd_protos.types import CapabilityId, Decision, RoutingLabel


class SessionFeedback:
    """Tells the registry what followed the messages of one session, so that routing learns."""

    __slots__ = ("_context", "_feedback", "_project")

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._feedback = Feedback()
        self._project = project_mark(context.place.project)

    def on_decided(self, decision: Decision) -> None:
        """Note the routing decision on a message of the session."""
        self._feedback.on_decided(decision)

    def on_enabled(self, id_: CapabilityId) -> None:
        """Learn that a person switched a capability on."""
        self._tell(self._feedback.on_enabled(id_, self._project, time.time()))

    def on_disabled(self, id_: CapabilityId) -> None:
        """Learn that a person switched a capability off."""
        self._tell(self._feedback.on_disabled(id_, self._project, time.time()))

    def on_called(self, ids: Iterable[CapabilityId]) -> None:
        """Learn from a successful call of a tool that the capabilities `ids` grant."""
        for each in ids:
            self._tell(self._feedback.on_called(each, self._project, time.time()))

    def _tell(self, label: RoutingLabel | None) -> None:
        place = self._context.place
        if label is None or place.parent or not self._context.view.rules.learns:
            return
        self._context.services.bus.publish(RoutingTaught(place.key, label))
