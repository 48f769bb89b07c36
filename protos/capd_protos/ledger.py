"""What the ledger stores and reports: what happened, without the text that anybody wrote.

A note holds names, sizes, times and outcomes. Of a user's message it has only a fingerprint, and of
a call's arguments and result only the sizes (docs/design/operation.md). A script is Python code of
a model or a person that calls tools (docs/scripts.md).
"""

from typing import Literal

import msgspec

from capd_protos.types import SessionKey

RecordedOutcome = Literal["result", "error", "not_sent", "outcome_unknown", "refused"]


class CallNote(msgspec.Struct, frozen=True, tag="ledger.call"):
    """The ledger's record of one tool call that has ended."""

    at: float
    """When the call ended, in seconds since the epoch."""
    session: SessionKey
    client: str
    project: str
    identity: str
    server: str
    tool: str
    """The tool's name at its server."""
    capabilities: list[str]
    """The capabilities that granted the tool, as `tap/name`."""
    outcome: RecordedOutcome
    """`error` is an error that the tool itself returned."""
    ms: float
    bytes_in: int
    """The size of the arguments."""
    bytes_out: int
    """The size of the result; 0 if there is none."""


class DecisionNote(msgspec.Struct, frozen=True, tag="ledger.decision"):
    """The ledger's record of one routing decision on a message."""

    at: float
    session: SessionKey
    fingerprint: str
    """The first 16 hex digits of the SHA-256 of the message."""
    outcome: str
    """This and `reason` are as in `types.Decision`."""
    reason: str
    name: str
    """`tap/name` of the winner, if there is one."""
    top: list[tuple[str, float]]
    """The best candidates, best first: `tap/name` and score."""
    ms: float
    suggested: list[str] = []
    """`tap/name` of the capabilities that were suggested to the model; none was switched on."""
    left_out: dict[str, int] = {}
    """How many candidates each filter removed."""
    threshold: float = 0.0
    """The threshold of the routing profile that decided; 0 if nothing was compared with it."""
    margin: float = 0.0
    """The margin of that profile, by which the best score had to exceed the second."""


class ActivationNote(msgspec.Struct, frozen=True, tag="ledger.activation"):
    """The ledger's record that a capability or tool was switched on or off, or could not be."""

    at: float
    session: SessionKey
    name: str
    """`tap/name` of a capability, or the name under which clients know a single tool."""
    action: str
    """`on`, `off`, `evicted` or `failed`. No `Literal`: it is read back from a database that a
    later daemon may have written to."""
    why: str
    """One line: who asked for it (`turn`, `model`, `search`, `skill`, `person`, `program` or
    `profile`), what evicted it, or why it failed."""


class SessionNote(msgspec.Struct, frozen=True, tag="ledger.session"):
    """The ledger's record that a session began or ended."""

    at: float
    session: SessionKey
    client: str
    project: str
    action: Literal["started", "ended"]


class ScriptNote(msgspec.Struct, frozen=True, tag="ledger.script"):
    """The ledger's record of a script that has ended. Each of its calls has a note of its own."""

    at: float
    session: SessionKey
    outcome: str
    """`result` or `error`. A plain `str`, as is `ActivationNote.action`: a later daemon may have
    written another value."""
    ms: float
    """Milliseconds from its request to its end. If a later daemon has continued the script, only
    the time in that daemon counts."""
    calls: list[tuple[str, str, int, float]] = []
    """One entry for each tool and outcome: the name under which clients know the tool, the outcome
    as in `CallNote`, the number of calls, and their mean duration in milliseconds."""


Note = CallNote | DecisionNote | ActivationNote | SessionNote | ScriptNote


class CountUses(msgspec.Struct, frozen=True, tag="ledger.count_uses"):
    """Count how often each tool was called successfully since `since`."""

    since: float
    """Seconds since the epoch."""


class Use(msgspec.Struct, frozen=True):
    """The successful calls of one tool."""

    identity: str
    """The identity of the tool's server."""
    tool: str
    """The tool's name at the server."""
    count: int
    last_at: float
    """When the newest of the calls ended, in seconds since the epoch."""


class UsesCounted(msgspec.Struct, frozen=True, tag="ledger.uses"):
    """Reply to `CountUses`: every tool that was used, most used first."""

    uses: list[Use]


class SumCalls(msgspec.Struct, frozen=True, tag="ledger.sum"):
    """Sum up the calls of each capability since `since`."""

    since: float
    """Seconds since the epoch."""


class CapabilityCalls(msgspec.Struct, frozen=True):
    """How many calls went through one capability, and how they ended."""

    name: str
    """`tap/name`; empty for calls of tools that no capability granted."""
    calls: int
    successes: int
    mean_ms: float
    bytes_out: int
    last_at: float = 0.0
    """When the newest call ended, in seconds since the epoch."""


class CallsSummed(msgspec.Struct, frozen=True, tag="ledger.summed"):
    """Reply to `SumCalls`: one entry for each capability with a call."""

    capabilities: list[CapabilityCalls]


class ListDecisions(msgspec.Struct, frozen=True, tag="ledger.list_decisions"):
    """Return the newest routing decisions, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class DecisionsListed(msgspec.Struct, frozen=True, tag="ledger.decisions"):
    """Reply to `ListDecisions`: the decisions, newest first."""

    decisions: list[DecisionNote]


class ListActivations(msgspec.Struct, frozen=True, tag="ledger.list_activations"):
    """Return the newest activations, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class ActivationsListed(msgspec.Struct, frozen=True, tag="ledger.activations"):
    """Reply to `ListActivations`: the activations, newest first."""

    activations: list[ActivationNote]


class ListScripts(msgspec.Struct, frozen=True, tag="ledger.list_scripts"):
    """Return the newest scripts, of one session or of all."""

    limit: int
    session: SessionKey = SessionKey("")


class ScriptsListed(msgspec.Struct, frozen=True, tag="ledger.scripts"):
    """Reply to `ListScripts`: the scripts, newest first."""

    scripts: list[ScriptNote]


class DescribeLedger(msgspec.Struct, frozen=True, tag="ledger.describe"):
    """Report the state of the ledger."""


class LedgerDescribed(msgspec.Struct, frozen=True, tag="ledger.described"):
    """Reply to `DescribeLedger`: the part of `capd status` that is about the ledger."""

    path: str
    size_bytes: int
    rows: dict[str, int]
    waiting: int
    """How many notes have not been written yet."""
    dropped: int
    """How many notes were dropped because writing them failed for too long."""
    problem: str
    """Why nothing can be written at present; empty if all is well."""
    is_enabled: bool = True


class LedgerRefused(msgspec.Struct, frozen=True, tag="ledger.refused"):
    """Reply to any request while the ledger cannot be read, or is switched off."""

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
