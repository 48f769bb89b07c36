"""What happened to calls under faults, and the rules that must hold of it.

Pure: a call's record is what its client sent and heard, the journal what servers did.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

RESULT, NOT_SENT, UNKNOWN, REFUSED = "result", "not_sent", "outcome_unknown", "refused"
UNLISTED = "error -32602"
"""The answer to a name that the session does not have: no call of a tool was asked for. A session
whose daemon was killed may have lost what was switched on in its last moments."""
OUTCOMES = frozenset({RESULT, NOT_SENT, UNKNOWN, REFUSED, UNLISTED})
_BY_CODE = {4001: NOT_SENT, 4002: UNKNOWN, 4003: REFUSED}


@dataclass(frozen=True)
class Answer:
    """One answer to a call."""

    outcome: str
    """One of `OUTCOMES`, or what was said instead."""
    text: str = ""


@dataclass
class Call:
    """One call of one session."""

    nonce: str
    session: str
    answers: list[Answer] = field(default_factory=list)
    is_client_gone: bool = False
    """Whether its shim was ended before it answered: nobody was there to be told."""


def answer_of(message: Mapping[str, Any]) -> Answer:
    """Return what a JSON-RPC response says of its call."""
    if "error" in message:
        error = message["error"]
        return Answer(_BY_CODE.get(error.get("code"), f"error {error.get('code')}"), str(error))
    result = message["result"]
    text = "".join(str(each.get("text", "")) for each in result.get("content", []))
    if not result.get("isError"):
        return Answer(RESULT, text)
    return Answer(str(result.get("_meta", {}).get("capd/outcome", "error without outcome")), text)


def violations(calls: Sequence[Call], journal: Iterable[str]) -> list[str]:
    """Return every rule that was broken, in words; empty where none was."""
    effects = Counter(journal)
    found = [f"{nonce}: in the journal, and never asked for" for nonce in _unasked(calls, effects)]
    for call in calls:
        found += [f"{call.nonce}: {each}" for each in _of(call, effects[call.nonce])]
    return found


def _unasked(calls: Sequence[Call], effects: Mapping[str, int]) -> list[str]:
    return sorted(set(effects) - {call.nonce for call in calls})


def _of(call: Call, effects: int) -> list[str]:
    found = []
    if effects > 1:
        found.append(f"ran {effects} times")
    if len(call.answers) > 1:
        found.append(f"answered {len(call.answers)} times: {call.answers}")
    if not call.answers and not call.is_client_gone:
        found.append("never answered")
    for answer in call.answers:
        if answer.outcome not in OUTCOMES:
            found.append(f"ended in no outcome that there is: {answer}")
        elif answer.outcome == RESULT and answer.text != call.nonce:
            found.append(f"was answered with another call's result: {answer.text[:200]!r}")
        elif answer.outcome == RESULT and not effects:
            found.append("has a result, and never ran")
        elif answer.outcome in {NOT_SENT, REFUSED, UNLISTED} and effects:
            found.append(f"ran, and was told as {answer.outcome}: {answer.text[:300]!r}")
        if answer.outcome == RESULT and not answer.text.startswith(f"{call.session}/"):
            found.append(f"was answered with another session's result: {answer.text[:200]!r}")
    return found
