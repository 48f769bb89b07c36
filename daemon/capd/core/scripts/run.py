"""One script's run: which calls it has made, and what each has come to.

    of a call       issued ──its turn──> begun ──first byte out──> sent ──answer──> answered
                                           └──not sent, refused────────────────────────┘

    of the run      stepped (the interpreter says what it wants to call)
                      ──> calls under way, at most `MOST_AT_ONCE`
                      ──> resumed with the answers that are there ──> stepped ... ──> finished

A call is issued once and sent at most once. What is written down before a call is sent is enough to
go on from there in another daemon: an answered call is not made again, and one that was sent and
not answered has an unknown outcome. Nothing is written for a script that has sent nothing: it can
begin again.

Frames are what is written down, in the order of their events:

    Begun, then Suspended, Sent, Answered       the last Suspended counts, and what is behind it

A suspension says of each of its calls whether it was sent by then, and what it came to, so that a
file that was cut off anywhere says no less than what had happened when it was written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from capd.core.errors import CapdError
from capd_protos.types import WireName

ENGINE = "pydantic-monty 1.4.0"
"""What snapshots are of; another version does not go on with them."""
MOST_AT_ONCE = 8
MOST_CALLS = 256
SLEEP = WireName("asyncio.sleep")
"""Stands for a wait of the script, which is no call of a tool."""
LONGEST_SLEEP = 60.0
RETENTION = 900.0
"""Seconds for which the run of a daemon that has died waits for its client."""

AnswerKind = Literal["value", "ToolError", "NotSent", "Refused", "OutcomeUnknown"]
CallStatus = Literal["issued", "begun", "sent", "answered"]

UNKNOWN = "The call was sent, and capd ended before the answer came: check before you repeat it."


class DamagedRunError(CapdError):
    """What was written down of a run cannot be used."""


class IssuedCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that the interpreter wants to have made; `arguments` are JSON."""

    id: int
    tool: WireName
    arguments: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What the script gets of a call: JSON, or the text of an exception."""

    kind: AnswerKind
    value: bytes
    size_bytes: int = 0
    """Of the server's whole result."""
    milliseconds: float = 0.0


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """Whose script it is, and what it runs."""

    session: str
    request: str
    """The client's id of the request, as JSON."""
    code: str
    inputs: bytes
    engine: str
    """What the snapshot is of: the interpreter and its version."""
    began_at: float
    functions: list[tuple[WireName, str]] = []
    """The names by which the script calls its tools."""


class Suspended(msgspec.Struct, frozen=True, tag="suspended"):
    """The interpreter, waiting for calls; `past` are the calls that it has had answers to."""

    snapshot: bytes
    calls: list[IssuedCall]
    past: list["PastCall"]
    printed: str = ""
    seconds: float = 0.0
    """Of computing so far."""
    sent: list[int] = []
    """Those of its calls that were sent by then."""
    answers: dict[int, Answer] = {}
    """What those of its calls came to that the interpreter has no answer of yet."""


class PastCall(msgspec.Struct, frozen=True, array_like=True):
    """A line of the table of calls."""

    id: int
    tool: WireName
    kind: AnswerKind
    size_bytes: int
    milliseconds: float


class Sent(msgspec.Struct, frozen=True, tag="sent"):
    """The first byte of a call is about to go out."""

    id: int


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """A call has its answer."""

    id: int
    answer: Answer


Frame = Begun | Suspended | Sent | Answered


@dataclass(slots=True)
class _Call:
    issued: IssuedCall
    status: CallStatus = "issued"
    answer: Answer | None = None


class ScriptRun:
    """The calls of one script."""

    def __init__(self) -> None:
        self._open: dict[int, _Call] = {}
        """Every call of which the interpreter has no answer yet, in the order of issue."""
        self.past: list[PastCall] = []
        self.has_sent = False
        """Whether any call has ever been sent: from then on the run cannot begin again."""

    @property
    def issued_count(self) -> int:
        """How many calls there have been."""
        return len(self.past) + sum(each.issued.tool != SLEEP for each in self._open.values())

    @property
    def answered_count(self) -> int:
        """How many of them have come to an end."""
        done = [each for each in self._open.values() if each.answer is not None]
        return len(self.past) + sum(each.issued.tool != SLEEP for each in done)

    @property
    def is_waiting(self) -> bool:
        """Whether a call is under way, or is to be begun."""
        return any(each.answer is None for each in self._open.values())

    def issue_new(self, calls: Iterable[IssuedCall]) -> None:
        """Take over those of `calls` that are not open: a step may be done a second time."""
        self.issue(call for call in calls if call.id not in self._open)

    def issue(self, calls: Iterable[IssuedCall]) -> None:
        """Take over what the interpreter wants to have called."""
        for call in calls:
            if call.id in self._open:
                raise ValueError(f"call {call.id} is issued twice")
            self._open[call.id] = _Call(call)

    def begin(self) -> list[IssuedCall]:
        """Return the calls whose turn it is; they count as under way from here on."""
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
        """Note that the first byte of a call is about to go out."""
        call = self._open[id_]
        if call.status != "begun":
            raise ValueError(f"call {id_} is sent twice")
        call.status = "sent"
        self.has_sent = True

    def was_sent(self, id_: int) -> bool:
        """Tell whether a call's first byte has gone out, in a round before this one."""
        return self._open[id_].status == "sent"

    def answered(self, id_: int, answer: Answer) -> None:
        """Note what a call came to."""
        call = self._open[id_]
        if call.status not in {"begun", "sent"}:
            raise ValueError(f"call {id_} has no answer to get")
        call.status, call.answer = "answered", answer

    def due(self) -> dict[int, Answer]:
        """Return the answers that the interpreter does not have yet."""
        return {id_: call.answer for id_, call in self._open.items() if call.answer is not None}

    def delivered(self, ids: Iterable[int]) -> None:
        """Note that the interpreter has gone on with these answers."""
        for id_ in ids:
            call = self._open.pop(id_)
            assert call.answer is not None
            if call.issued.tool != SLEEP:
                self.past.append(_past(call.issued, call.answer))

    def suspended(self, snapshot: bytes, printed: str, seconds: float) -> Suspended:
        """Return the frame of the run as it waits now."""
        calls = [each.issued for each in self._open.values()]
        sent = [id_ for id_, each in self._open.items() if each.status == "sent"]
        return Suspended(snapshot, calls, list(self.past), printed, seconds, sent, self.due())

    @property
    def open_ids(self) -> frozenset[int]:
        """The calls that a suspension has now."""
        return frozenset(self._open)

    def table(self) -> list[PastCall]:
        """Return all calls in the order of issue, for the table; those without an answer too."""
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
    """A run as it goes on after the daemon that began it."""

    begun: Begun
    suspended: Suspended
    run: ScriptRun


def restored(frames: Sequence[Frame]) -> Restored:
    """Return the run that was written down; sent calls without an answer are unknown.

    Raises:
        DamagedRunError: the frames are in no order that a run has.
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
