"""What the ledger keeps and answers: what happened, never what anybody wrote.

A note holds names, sizes, times and outcomes. A user's message is there as a fingerprint, a call's
arguments and result as their sizes alone (docs/design/operation.md).
"""

from typing import Literal

import msgspec

from capd_protos.types import SessionKey

RecordedOutcome = Literal["result", "error", "not_sent", "outcome_unknown", "refused"]


class CallNote(msgspec.Struct, frozen=True, tag="ledger.call"):
    """One tool call that has ended."""

    at: float
    """Seconds since the epoch, at its end."""
    session: SessionKey
    client: str
    project: str
    identity: str
    server: str
    tool: str
    """Its name at the server."""
    capabilities: list[str]
    """What granted it, as `tap/name`."""
    outcome: RecordedOutcome
    """`error` is the tool's own."""
    ms: float
    bytes_in: int
    """Of the arguments."""
    bytes_out: int
    """Of the result, 0 where there is none."""


class DecisionNote(msgspec.Struct, frozen=True, tag="ledger.decision"):
    """One routing decision."""

    at: float
    session: SessionKey
    fingerprint: str
    outcome: str
    reason: str
    name: str
    """`tap/name` of the winner, where there is one."""
    top: list[tuple[str, float]]
    ms: float
    suggested: list[str] = []
    """`tap/name` of what was put to the model instead."""
    left_out: dict[str, int] = {}
    """Candidates that filters removed, counted by filter."""
    threshold: float = 0.0
    """Of the routing profile that decided; 0 where nothing was compared with it."""
    margin: float = 0.0


class ActivationNote(msgspec.Struct, frozen=True, tag="ledger.activation"):
    """Something was switched on or off, or could not be."""

    at: float
    session: SessionKey
    name: str
    """`tap/name`, or the wire name of a single tool."""
    action: str
    """`on`, `off`, `evicted` or `failed`. No `Literal`: it is read back from a database that a
    later daemon may have written to."""
    why: str
    """Who wanted it (`turn`, `model`, `person`, `search`, `start`), what made it go, or in one
    line what failed."""


class SessionNote(msgspec.Struct, frozen=True, tag="ledger.session"):
    """A session began, or was over."""

    at: float
    session: SessionKey
    client: str
    project: str
    action: Literal["started", "ended"]


class ScriptNote(msgspec.Struct, frozen=True, tag="ledger.script"):
    """A script has ended; each of its calls has a note of its own beside this one."""

    at: float
    session: SessionKey
    outcome: str
    """`result` or `error`. No `Literal`, like `action` of `ActivationNote`."""
    ms: float
    """From its request to its end, since the daemon of its end began."""
    calls: list[tuple[str, str, int, float]] = []
    """The wire name of a tool, an outcome as in `CallNote`, how many calls, and their mean
    milliseconds."""


Note = CallNote | DecisionNote | ActivationNote | SessionNote | ScriptNote


class CountUses(msgspec.Struct, frozen=True, tag="ledger.count_uses"):
    """How often each tool was called with success since `since`."""

    since: float


class Use(msgspec.Struct, frozen=True):
    """The successful calls of one tool."""

    identity: str
    tool: str
    count: int
    last_at: float


class UsesCounted(msgspec.Struct, frozen=True, tag="ledger.uses"):
    """Every tool with a use, most used first."""

    uses: list[Use]


class SumCalls(msgspec.Struct, frozen=True, tag="ledger.sum"):
    """What each capability's calls came to since `since`."""

    since: float


class CapabilityCalls(msgspec.Struct, frozen=True):
    """The calls through one capability."""

    name: str
    """`tap/name`; empty for calls that none granted."""
    calls: int
    successes: int
    mean_ms: float
    bytes_out: int
    last_at: float = 0.0
    """Seconds since the epoch, of the newest."""


class CallsSummed(msgspec.Struct, frozen=True, tag="ledger.summed"):
    """Every capability with a call."""

    capabilities: list[CapabilityCalls]


class ListDecisions(msgspec.Struct, frozen=True, tag="ledger.list_decisions"):
    """The newest decisions, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class DecisionsListed(msgspec.Struct, frozen=True, tag="ledger.decisions"):
    """Newest first."""

    decisions: list[DecisionNote]


class ListActivations(msgspec.Struct, frozen=True, tag="ledger.list_activations"):
    """The newest activations, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class ActivationsListed(msgspec.Struct, frozen=True, tag="ledger.activations"):
    """Newest first."""

    activations: list[ActivationNote]


class ListScripts(msgspec.Struct, frozen=True, tag="ledger.list_scripts"):
    """The newest scripts, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class ScriptsListed(msgspec.Struct, frozen=True, tag="ledger.scripts"):
    """Newest first."""

    scripts: list[ScriptNote]


class DescribeLedger(msgspec.Struct, frozen=True, tag="ledger.describe"):
    """How the ledger is."""


class LedgerDescribed(msgspec.Struct, frozen=True, tag="ledger.described"):
    """The ledger's part of the status."""

    path: str
    size_bytes: int
    rows: dict[str, int]
    waiting: int
    """Notes that are not written yet."""
    dropped: int
    """Notes that were lost because they could not be written for long."""
    problem: str
    """Why nothing can be written at present; empty where all is well."""
    is_enabled: bool = True


class LedgerRefused(msgspec.Struct, frozen=True, tag="ledger.refused"):
    """The ledger cannot be read."""

    message: str


Request = CountUses | SumCalls | ListDecisions | ListActivations | ListScripts | DescribeLedger
Reply = (
    UsesCounted
    | CallsSummed
    | DecisionsListed
    | ActivationsListed
    | ScriptsListed
    | LedgerDescribed
    | LedgerRefused
)
