"""The state of one script's run: its calls, and how each ended.

    of a call       issued ──its turn──> begun ──first byte out──> sent ──answer──> answered
                                           └──not sent, refused────────────────────────┘

    of the run      stepped (the interpreter names the calls that it wants)
                      ──> calls in progress, at most `MOST_AT_ONCE`
                      ──> resumed with the available answers ──> stepped ... ──> finished

A call is issued once and sent at most once. Before a call is sent, enough is saved for another
daemon to continue from there: an answered call is not repeated, and a call that was sent but not
answered has an unknown outcome. Nothing is saved for a script that has sent nothing: it can start
again.

The saved state consists of frames, in the order of their events:

    Begun, then Suspended, Sent, Answered       the last Suspended counts, and all frames after it

A suspension records for each of its calls whether it was sent before, and how it ended. So even a
file that is cut off contains everything that had happened when it was written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from capd.core.errors import CapdError
from capd_protos.types import WireName

ENGINE = "pydantic-monty 1.4.0"
"""The interpreter that writes snapshots. Another version cannot continue from them."""
MOST_AT_ONCE = 8
MOST_CALLS = 256
SLEEP = WireName("asyncio.sleep")
"""Waits of a script are in the list of calls under this name, although they call no tool."""
LONGEST_SLEEP = 60.0
RETENTION = 900.0
"""Seconds for which a script's saved run can be continued after its daemon has died."""

AnswerKind = Literal["value", "ToolError", "NotSent", "Refused", "OutcomeUnknown"]
CallStatus = Literal["issued", "begun", "sent", "answered"]

UNKNOWN = "The call was sent, and capd ended before the answer came: check before you repeat it."


class DamagedRunError(CapdError):
    """The saved state of a script's run cannot be used."""


class IssuedCall(msgspec.Struct, frozen=True, array_like=True):
    """A tool call or wait (`SLEEP`) that a script's interpreter asks for; `arguments` are JSON."""

    id: int
    tool: WireName
    arguments: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The answer that a script gets to one of its calls: JSON, or the text of an exception."""

    kind: AnswerKind
    value: bytes
    size_bytes: int = 0
    """The size of the server's result."""
    milliseconds: float = 0.0


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """The first record of a script's saved run: script, session and request."""

    session: str
    request: str
    """The client's id of the request, as JSON."""
    code: str
    inputs: bytes
    engine: str
    """The interpreter and its version, for which the snapshot is valid."""
    began_at: float
    functions: list[tuple[WireName, str]] = []
    """The functions of tools that the script may call: the name under which clients know each tool,
    and the function's name."""


class Suspended(msgspec.Struct, frozen=True, tag="suspended"):
    """The saved state of a script's run while it waits for `calls`.

    `past` are the calls whose answers the interpreter has got.
    """

    snapshot: bytes
    calls: list[IssuedCall]
    past: list["PastCall"]
    printed: str = ""
    seconds: float = 0.0
    """Seconds that the script has computed so far."""
    sent: list[int] = []
    """The ids of those of `calls` that were sent and have no answer yet."""
    answers: dict[int, Answer] = {}
    """The answers that have arrived and that the interpreter has not got yet."""


class PastCall(msgspec.Struct, frozen=True, array_like=True):
    """A tool call of a script that has ended, for the table of calls."""

    id: int
    tool: WireName
    kind: AnswerKind
    size_bytes: int
    milliseconds: float


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """The record in a script's saved run that a call's first byte is about to be written."""

    id: int


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The record in a script's saved run that a call has its answer."""

    id: int
    answer: Answer


Frame = Begun | Suspended | Sent | Answered


@dataclass(slots=True)
class _Call:
    issued: IssuedCall
    status: CallStatus = "issued"
    answer: Answer | None = None


class ScriptRun:
    """Follows the tool calls of one script, from the interpreter's request to the answer."""

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        """Every call whose answer the interpreter has not got yet, in the order of issue."""
        self.past: list[PastCall] = []
        self.has_sent = False
        """Whether any call was sent. From then on the run cannot start again."""

    @property
    def issued_count(self) -> int:
        """How many calls of tools have been issued; waits are not counted."""
        return len(self.past) + sum(each.issued.tool != SLEEP for each in self._open.values())

    @property
    def answered_count(self) -> int:
        """How many calls of tools have ended; waits are not counted."""
        done = [each for each in self._open.values() if each.answer is not None]
        return len(self.past) + sum(each.issued.tool != SLEEP for each in done)

    @property
    def is_waiting(self) -> bool:
        """Whether a call or wait of the script is in progress, or still has to begin."""
        return any(each.answer is None for each in self._open.values())

    def issue_new(self, calls: Iterable[IssuedCall]) -> None:
        """Add those of `calls` that are new: not among the ones that wait for an answer.

        A step that is repeated after a restart asks for the same calls again.
        """
        self.issue(call for call in calls if call.id not in self._open)

    def issue(self, calls: Iterable[IssuedCall]) -> None:
        """Add the tool calls that the script's interpreter asks for."""
        for call in calls:
            if call.id in self._open:
                raise ValueError(f"call {call.id} is issued twice")
            self._open[call.id] = _Call(call)

    def begin(self) -> list[IssuedCall]:
        """Return the calls to start now, so that at most `MOST_AT_ONCE` are in progress."""
        under_way = sum(each.status in {"begun", "sent"} for each in self._open.values())
        begun: list[IssuedCall] = []
        for call in self._open.values():
            if under_way >= MOST_AT_ONCE:
                break
            if call.status == "issued":
                call.status = "begun"
                begun.append(call.issued)
                under_way += 1
        return begun

    def sent(self, id_: int) -> None:
        """Note that the first byte of a call is about to be written."""
        call = self._open[id_]
        if call.status != "begun":
            raise ValueError(f"call {id_} is sent twice")
        call.status = "sent"
        self.has_sent = True

    def was_sent(self, id_: int) -> bool:
        """Tell whether a call was sent and its answer is still missing."""
        return self._open[id_].status == "sent"

    def answered(self, id_: int, answer: Answer) -> None:
        """Store the answer to a tool call of the script."""
        call = self._open[id_]
        if call.status not in {"begun", "sent"}:
            raise ValueError(f"call {id_} has no answer to get")
        call.status, call.answer = "answered", answer

    def due(self) -> dict[int, Answer]:
        """Return the answers that the interpreter has not got yet, by the ids of the calls."""
        return {id_: call.answer for id_, call in self._open.items() if call.answer is not None}

    def delivered(self, ids: Iterable[int]) -> None:
        """Note that the interpreter has got the answers to these calls."""
        for id_ in ids:
            call = self._open.pop(id_)
            assert call.answer is not None
            if call.issued.tool != SLEEP:
                self.past.append(_past(call.issued, call.answer))

    def suspended(self, snapshot: bytes, printed: str, seconds: float) -> Suspended:
        """Return the record to save while the run waits for calls.

        `snapshot` is the interpreter's state, `printed` the output so far, and `seconds` the time
        computed.
        """
        calls = [each.issued for each in self._open.values()]
        sent = [id_ for id_, each in self._open.items() if each.status == "sent"]
        return Suspended(snapshot, calls, list(self.past), printed, seconds, sent, self.due())

    @property
    def open_ids(self) -> frozenset[int]:
        """The ids of the calls whose answers the interpreter has not got yet."""
        return frozenset(self._open)

    def table(self) -> list[PastCall]:
        """Return all tool calls of the script in the order of issue, also unanswered ones."""
        rest = [
            _past(each.issued, each.answer or _no_answer(each.status))
            for each in self._open.values()
            if each.issued.tool != SLEEP
        ]
        return sorted([*self.past, *rest], key=lambda each: each.id)


def _past(issued: IssuedCall, answer: Answer) -> PastCall:
    return PastCall(issued.id, issued.tool, answer.kind, answer.size_bytes, answer.milliseconds)


def _no_answer(status: CallStatus) -> Answer:
    return Answer("OutcomeUnknown" if status == "sent" else "NotSent", b"")


@dataclass(frozen=True, slots=True)
class Restored:
    """The run of a script that an earlier daemon has saved, to be continued."""

    begun: Begun
    suspended: Suspended
    run: ScriptRun


def restored(frames: Sequence[Frame]) -> Restored:
    """Return the run that the saved records `frames` describe.

    Calls that were sent and not answered get the outcome `OutcomeUnknown`.

    Raises:
        DamagedRunError: the records are in an impossible order.
    """
    at = max((n for n, each in enumerate(frames) if isinstance(each, Suspended)), default=0)
    begun, suspended = (frames[0], frames[at]) if frames else (None, None)
    if not isinstance(begun, Begun) or not isinstance(suspended, Suspended):
        raise DamagedRunError("it does not begin with a script and its state")
    calls: Mapping[int, IssuedCall] = {each.id: each for each in suspended.calls}
    if len(calls) != len(suspended.calls):
        raise DamagedRunError("a call is in it twice")
    answers = {id_: Answer("OutcomeUnknown", UNKNOWN.encode()) for id_ in suspended.sent}
    answers |= suspended.answers
    for frame in frames[at + 1 :]:
        match frame:
            case Sent(id_):
                answers.setdefault(id_, Answer("OutcomeUnknown", UNKNOWN.encode()))
            case Answered(id_, answer):
                answers[id_] = answer
            case _:
                raise DamagedRunError("it begins twice")
    if not answers.keys() <= calls.keys():
        raise DamagedRunError("it has a frame that belongs to no call")
    run = ScriptRun()
    run.past = list(suspended.past)
    run.issue(suspended.calls)
    for id_, call in run._open.items():  # noqa: SLF001 - of the class above
        if id_ in answers:
            call.status, call.answer = "answered", answers[id_]
    run.has_sent = True
    return Restored(begun, suspended, run)
