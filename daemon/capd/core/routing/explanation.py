"""Explains a routing decision in a sentence, for `capd why`."""

from collections.abc import Iterable

from capd_protos.ledger import DecisionNote
from capd_protos.types import LearntEntry

_PLAIN = {
    "disabled": "routing is switched off here",
    "system_content": "the text is not a user's own words",
    "too_short": "fewer than 8 characters are left of it after cleaning",
    "model_not_ready": "the embedding model was not ready, and its words alone were not sure",
    "no_candidates": "no capability may be routed to: see capd caps",
    "set_by_user": "the user has set that it does not come on by itself, or not at this score",
    "over_budget": "the turn's budget had no room for all of it",
    "already_active": "it is on already, so nothing changes",
}
_NOT_HERE = {
    "missing_secrets": "lacks a key",
    "missing_program": "needs a program that is not installed",
    "domain": "is for other domains than this session's",
}


def explained(note: DecisionNote, threshold: float, margin: float) -> str:
    """Return why a decision was made, with the scores and limits that decided.

    `threshold` and `margin` are those of the present routing profile, for a note that has none.
    """
    threshold, margin = note.threshold or threshold, note.margin or margin
    best = note.top[0] if note.top else None
    second = note.top[1][1] if len(note.top) > 1 else 0.0
    if note.reason == "whole_trigger":
        return f"the message is a trigger of {note.name}, word for word"
    if note.reason in _NOT_HERE:
        name = best[0] if best is not None else "one"
        return f"it would have been {name}, which {_NOT_HERE[note.reason]}; nothing takes its place"
    if note.outcome == "activate" and best is not None:
        return (
            f"{best[0]} scored {best[1]:.2f}, which reaches the threshold {threshold:.2f}, "
            f"and the next one {second:.2f}"
        )
    if best is not None and note.reason == "below_threshold" and best[1] >= threshold > 0:
        why = f"{best[0]} scored {best[1]:.2f}, but the message may want nothing at all"
    elif best is not None and note.reason == "below_threshold":
        why = f"the best, {best[0]}, scored {best[1]:.2f}, under the threshold {threshold:.2f}"
    elif best is not None and note.reason == "below_margin":
        why = (
            f"{best[0]} scored {best[1]:.2f} and {note.top[1][0] if len(note.top) > 1 else 'none'} "
            f"{second:.2f}: less than {margin:.2f} apart, so neither is clearly meant"
        )
    elif best is not None and note.reason == "near_tie":
        why = f"{best[0]} scored {best[1]:.2f}, and nothing says that it is meant and none like it"
    else:
        why = _PLAIN.get(note.reason, note.reason or "no reason was recorded")
    if note.outcome == "suggest":
        return f"{why}; the best were suggested to the model instead"
    return why


def counted(note: DecisionNote, learnt: Iterable[LearntEntry]) -> list[LearntEntry]:
    """Return what routing has learnt about a decision's winner and its two best candidates.

    `learnt` is what it has learnt by now. Entries from after the decision are left out, because
    they did not influence it.
    """
    named = {note.name, *(name for name, _ in note.top[:2])}
    return [each for each in learnt if each.capability in named and each.since < note.at]
