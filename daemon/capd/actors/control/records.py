"""Methods about the past: why routing decided something, and the daemon's metrics."""

from collections.abc import Awaitable, Callable
from typing import Any

import trio

from capd.actors.control import documents
from capd.actors.control.actors import LEDGER_TIMEOUT, Actors, MethodError, accepted
from capd.actors.control.learning import entry_document
from capd.actors.control.tool_edits import edits_in_force
from capd.core.records.tally import Tally
from capd.core.routing.explanation import counted, explained
from capd.core.routing.remedies import CapabilityFacts, consequence, followed, remedies
from capd.runtime.bus import ActorUnavailableError
from capd_protos import registry
from capd_protos import socket as frames
from capd_protos.extras import missing
from capd_protos.ledger import (
    ActivationNote,
    DecisionNote,
    ScriptNote,
)
from capd_protos.types import SessionKey

ACTIVATIONS_FOR_EACH = 10
"""How many of the newest activations are read from the ledger for each decision that is shown."""

Method = Callable[[Any], Awaitable[dict[str, Any]]]


class RecordMethods:
    """The methods `why` and `metrics`. Without a ledger, `why` uses what the registry remembers."""

    def __init__(self, actors: Actors, tally: Tally, *, status: Method, caps: Method) -> None:
        """Create the methods. `tally` has counted events since the daemon started.

        `status` and `caps` are the control methods of these names. `metrics` uses the document of
        `status`, and `why` that of `caps`.
        """
        self._actors = actors
        self._tally = tally
        self._status = status
        self._caps = caps
        self.methods: dict[str, Method] = {"why": self._why, "metrics": self._metrics}

    async def _why(self, params: frames.WhyParams) -> dict[str, Any]:
        session = SessionKey(params.session)
        described = await self._actors.registry.describe()
        problem, activations, scripts = "", list[ActivationNote](), list[ScriptNote]()
        try:
            listed = await self._actors.ledger.decisions(
                params.limit, session, timeout=LEDGER_TIMEOUT
            )
            decisions = accepted(listed).decisions
            more = await self._actors.ledger.activations(
                params.limit * ACTIVATIONS_FOR_EACH, session, timeout=LEDGER_TIMEOUT
            )
            activations = accepted(more).activations
            ran = await self._actors.ledger.scripts(params.limit, session, timeout=LEDGER_TIMEOUT)
            scripts = accepted(ran).scripts
        except (ActorUnavailableError, MethodError) as error:
            problem = str(error)
            decisions = _remembered(described, session)[: params.limit]
        caps = await self._caps(frames.NoParams())
        known = {f"{each['tap']}/{each['name']}": _known(each) for each in caps["capabilities"]}
        live = {entry.key for entry in (await self._actors.curator.sessions()).sessions}
        profile = (float(described.profile["threshold"]), float(described.profile["margin"]))
        learnt = (await self._actors.registry.learning()).entries
        percents = {
            _key(each.session, each.at): each.percent
            for each in (await self._actors.registry.progress()).decisions
        }
        entries = [
            {
                **_explained(
                    note, followed(note, activations), known, profile, is_live=note.session in live
                ),
                "learnt": [entry_document(each) for each in counted(note, learnt)],
                "percent": percents.get(_key(note.session, note.at), 100),
            }
            for note in decisions
        ]
        return {
            "schema": documents.SCHEMA,
            "source": "memory" if problem else "ledger",
            "problem": problem,
            "decisions": entries,
            "activations": [
                {
                    "at": note.at,
                    "session": note.session,
                    "name": note.name,
                    "action": note.action,
                    "why": note.why,
                }
                for note in activations[: params.limit]
            ],
            "scripts": [_script(note) for note in scripts],
            "edits": await edits_in_force(self._actors),
        }

    async def _metrics(self, _: frames.NoParams) -> dict[str, Any]:
        # Imported in a thread: the library is slow to import, and most daemons never need it.
        await trio.to_thread.run_sync(_metrics_text)
        status = await self._status(frames.NoParams())
        return {"schema": documents.SCHEMA, "text": _metrics_text()(self._tally, status)}


def _metrics_text() -> Callable[[Tally, dict[str, Any]], str]:
    try:
        from capd.adapters.metrics_text import metrics_text  # noqa: PLC0415 - see `_metrics`
    except ImportError:
        raise MethodError(frames.UNAVAILABLE, missing("metrics")) from None

    return metrics_text


def _remembered(described: registry.RegistryDescribed, session: SessionKey) -> list[DecisionNote]:
    """Return the decisions in `session` that the registry has in memory, the newest first.

    If `session` is empty, return those of all sessions.
    """
    return [
        DecisionNote(
            entry.at,
            entry.session,
            entry.decision.fingerprint,
            entry.decision.outcome,
            entry.decision.reason,
            str(entry.decision.id) if entry.decision.id else "",
            [(str(score.id), round(score.score, 4)) for score in entry.decision.top],
            round(entry.ms, 3),
            [str(id_) for id_ in entry.decision.suggested],
            entry.decision.left_out,
        )
        for entry in reversed(described.decisions)
        if session in {"", entry.session}
    ]


def _key(session: str, at: float) -> tuple[str, float]:
    """Return a key of a decision; it is the same in memory and in the ledger."""
    return session, round(at, 3)


def _script(note: ScriptNote) -> dict[str, Any]:
    return {
        "at": note.at,
        "session": note.session,
        "outcome": note.outcome,
        "ms": note.ms,
        "calls": [
            {"tool": tool, "outcome": outcome, "count": count, "ms": ms}
            for tool, outcome, count, ms in note.calls
        ],
    }


def _known(cap: dict[str, Any]) -> CapabilityFacts:
    return CapabilityFacts(cap["triggers"], cap["missing"], cap["reason"])


def _explained(
    note: DecisionNote,
    came: tuple[ActivationNote, ...],
    known: dict[str, CapabilityFacts],
    profile: tuple[float, float],
    *,
    is_live: bool,
) -> dict[str, Any]:
    return {
        "at": note.at,
        "session": note.session,
        "fingerprint": note.fingerprint,
        "outcome": note.outcome,
        "name": note.name,
        "reason": note.reason,
        "top": [{"name": name, "score": score} for name, score in note.top],
        "suggested": note.suggested,
        "left_out": note.left_out,
        "ms": note.ms,
        "why": explained(note, *profile),
        "came": consequence(came),
        "next": remedies(note, came, known, is_live=is_live),
    }
