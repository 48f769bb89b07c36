"""Notes the calls of one session in the ledger, including those that failed."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capd.adapters.clients.conversation import Request
from capd.adapters.ledger.journal import Journal
from capd.core.protocol.calls import end_of
from capd.core.protocol.generations import Members
from capd.core.protocol.outcomes import CallFailedError
from capd.core.results.large_results import Result
from capd.core.scripts.run import PastCall
from capd.core.scripts.script_answers import summed
from capd.core.sessions.active_set import ActiveSet, Grant
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.surface import ShownTool
from capd_protos.ledger import CallNote, RecordedOutcome, ScriptNote
from capd_protos.types import CapabilityId, ServerName


@dataclass(slots=True)
class CallRecord:
    """One call of an active tool, from the request to the record of it in the ledger."""

    request: Request
    shown: ShownTool
    server: ServerName
    began_at: float
    """When the call began, by the monotonic clock."""
    sent: Members
    """The params that the server gets. If the tool is edited, they differ from the client's."""


class CallNotes:
    """Writes a record in the ledger about each call of one session."""

    def __init__(self, journal: Journal, place: SessionPlace, active: ActiveSet) -> None:
        self._journal = journal
        self._place = place
        self._active = active

    def ended(
        self,
        call: CallRecord,
        granting: Iterable[CapabilityId],
        result: Result | None,
        error: Exception | None,
    ) -> RecordedOutcome:
        """Record in the ledger that a call has ended, with or without an error; return its outcome.

        `granting` are the capabilities that grant the tool.
        """
        outcome, result_bytes = end_of(result, error)
        seconds = time.monotonic() - call.began_at
        sizes = (len(call.sent.get("arguments", b"")), result_bytes)
        self._note(call.shown.grant, call.server, granting, outcome, seconds=seconds, sizes=sizes)
        return outcome

    def not_sent(self, grant: Grant, server: ServerName, error: CallFailedError) -> None:
        """Record a call that was refused or failed before it could be sent."""
        granting = self._active.granting(grant)
        self._note(grant, server, granting, error.outcome)

    def script_ended(self, outcome: str, seconds: float, calls: Sequence[PastCall]) -> None:
        """Record a script that has ended, with its calls by tool and outcome."""
        self._journal.note(
            ScriptNote(
                time.time(), self._place.key, outcome, round(seconds * 1000, 3), summed(calls)
            )
        )

    def _note(
        self,
        grant: Grant,
        server: ServerName,
        granting: Iterable[CapabilityId],
        outcome: RecordedOutcome,
        *,
        seconds: float = 0.0,
        sizes: tuple[int, int] = (0, 0),
    ) -> None:
        self._journal.note(
            CallNote(
                time.time(),
                self._place.key,
                self._place.client,
                self._place.project,
                grant.server,
                server,
                grant.tool,
                [str(id_) for id_ in granting],
                outcome,
                round(seconds * 1000, 3),
                *sizes,
            )
        )
