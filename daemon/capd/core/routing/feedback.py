"""Turns what happens after a message in one session into labels for `core.routing.learning`.

    message decided ──> a person switches on another one     ──> enabled
                   ├──> a person switches off what came on   ──> disabled
                   └──> a call through what came on, or was suggested, worked ──> called

A capability that a person switches on gives a label, unless the last message had switched it on
itself. The other two labels are only about a capability that the person's message had switched on
or, for a call, suggested. What the conversation's own model switches on or off gives no label,
because a server's text may have led the model to it. The model's calls do give labels. A capability
that was called is not counted as a mistake when it is switched off later.
"""

from capd_protos.types import CapabilityId, Decision, RoutingAct, RoutingLabel

MESSAGES_UNTIL_KEPT = 3
"""If this many messages follow, switching off what a message had switched on is no correction."""


class Feedback:
    """Follows one session's decisions and returns labels, from which routing learns.

    A label says that a decision was right or wrong.
    """

    __slots__ = ("_brought", "_called", "_decision", "_messages")

    def __init__(self) -> None:
        self._decision: Decision | None = None
        self._called: set[CapabilityId] = set()
        # What messages switched on and no call has used yet, with the number of the message.
        self._brought: dict[CapabilityId, tuple[int, Decision]] = {}
        self._messages = 0

    def on_decided(self, decision: Decision) -> None:
        """Note the decision on the session's next message."""
        self._messages += 1
        self._decision = decision
        self._called.clear()
        oldest = self._messages - MESSAGES_UNTIL_KEPT
        self._brought = {id_: each for id_, each in self._brought.items() if each[0] > oldest}
        if decision.outcome == "activate" and decision.id is not None:
            self._brought[decision.id] = (self._messages, decision)

    def on_enabled(self, id_: CapabilityId, project: str, at: float) -> RoutingLabel | None:
        """Return the label for a capability that a person switched on at `at`.

        A label is what routing learns from. `project` is a hash of the project's path
        (`project_mark`), and `at` is in seconds since the epoch. None if the last message had
        switched the capability on itself.
        """
        decision = self._decision
        if decision is not None and decision.outcome == "activate" and decision.id == id_:
            return None
        return _label(at, id_, "enabled", decision, project)

    def on_disabled(self, id_: CapabilityId, project: str, at: float) -> RoutingLabel | None:
        """Return the label for a capability that a person switched off at `at`.

        A label is what routing learns from. `project` is a hash of the project's path
        (`project_mark`), and `at` is in seconds since the epoch. None unless one of the last
        messages had switched the capability on, and no call has used it.
        """
        _, decision = self._brought.pop(id_, (0, None))
        return _label(at, id_, "disabled", decision, project) if decision is not None else None

    def on_called(self, id_: CapabilityId, project: str, at: float) -> RoutingLabel | None:
        """Return the label for a capability whose tool was called successfully at `at`.

        A label is what routing learns from. `project` is a hash of the project's path
        (`project_mark`), and `at` is in seconds since the epoch. None unless the last message
        switched the capability on or suggested it, and this is the first such call since then.
        """
        self._brought.pop(id_, None)
        decision = self._decision
        if decision is None or id_ in self._called:
            return None
        if id_ != decision.id and id_ not in decision.suggested:
            return None
        self._called.add(id_)
        return _label(at, id_, "called", decision, project)


def _label(
    at: float, id_: CapabilityId, act: RoutingAct, decision: Decision | None, project: str
) -> RoutingLabel:
    top = decision.top if decision is not None else ()
    score = next((each.score for each in top if each.id == id_), 0.0)
    fingerprint = decision.fingerprint if decision is not None else ""
    score = min(1.0, max(0.0, round(score, 4)))
    return RoutingLabel(at, str(id_), act, score, fingerprint, project)
