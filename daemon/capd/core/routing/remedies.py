"""What happened after a routing decision, and how a person can change it, for `capd why`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from capd_protos.ledger import ActivationNote, DecisionNote

MOST_NAMED = 3
_ALL_KEYS = "capd secret list names the keys that are missing"
CLOSE = 2
"""For how many of the best candidates remedies are named, if there was no clear winner."""


@dataclass(frozen=True, slots=True)
class CapabilityFacts:
    """The present facts about a capability that may explain why it was not switched on."""

    triggers: Sequence[str] = ()
    missing: Sequence[str] = ()
    """The names of the secrets that the capability needs and that have no value."""
    reason: str = ""
    """Why the capability cannot be used; empty if it can."""


def followed(
    note: DecisionNote, activations: Iterable[ActivationNote]
) -> tuple[ActivationNote, ...]:
    """Return what happened after a decision to the capability that it activated, oldest first.

    Events from the next activation on are left out: they have another cause.
    """
    if note.outcome != "activate":
        return ()
    later = sorted(
        (
            each
            for each in activations
            if each.session == note.session and each.name == note.name and each.at >= note.at
        ),
        key=lambda each: each.at,
    )
    again = (at for at, each in enumerate(later) if at and each.action in {"on", "failed"})
    return tuple(later[: next(again, len(later))])


def consequence(came: Sequence[ActivationNote]) -> str:
    """Return a clause that says what happened after a decision; empty if nothing was recorded.

    `came` is the result of `followed`.
    """
    if not came:
        return ""
    if came[0].action == "failed":
        return f"it could not be switched on: {came[0].why}"
    if came[-1].action in {"off", "evicted"}:
        return f"it was switched on, and is off again: {came[-1].why}"
    return "it was switched on"


def remedies(
    note: DecisionNote,
    came: Sequence[ActivationNote],
    known: Mapping[str, CapabilityFacts],
    *,
    is_live: bool,
) -> list[str]:
    """Return what a person can do to get another outcome, one line for each way.

    `came` is the result of `followed`. `known` has every capability by `tap/name`. `is_live` says
    whether the session is open.
    """
    at = f" --session {note.session}" if is_live else ""
    if note.outcome == "activate":
        return _after_activation(note, came, known, at)
    lines: list[str] = []
    match note.reason:
        case "already_active":
            return []
        case "missing_secrets":
            # The unusable winner is the first of all that were ranked.
            missing = known[note.top[0][0]].missing if note.top and note.top[0][0] in known else ()
            return _lacking(note.top[0][0], missing) if missing else [_ALL_KEYS]
        case "missing_program":
            name = note.top[0][0] if note.top else "NAME"
            return [f"capd enable {name}{at} says which program to install, and how"]
        case "domain":
            return ["`domain` in config.toml says what a session is for: see docs/routing.md"]
        case "below_threshold" | "below_margin" | "near_tie" if note.top:
            count = 1 if note.reason == "below_threshold" else CLOSE
            for name, _ in note.top[:count]:
                missing = known[name].missing if name in known else ()
                lines += _lacking(name, missing) or _if_meant(name, known, at)
        case "set_by_user":
            lines.append("`automatic` and `threshold` in capability-index.yaml: see capd index")
        case "model_not_ready":
            lines.append("capd status says how the model is; once it is ready, say it again")
        case "no_candidates":
            lines.append("capd caps says of each capability why it is not used")
        case _:
            lines.append(f"capd enable NAME{at} switches one on by hand; capd caps has the names")
    return lines + _left_out(note, known, named=any("capd secret set" in line for line in lines))


def _after_activation(
    note: DecisionNote,
    came: Sequence[ActivationNote],
    known: Mapping[str, CapabilityFacts],
    at: str,
) -> list[str]:
    if not came or came[-1].action == "on":
        return []
    keys = known[note.name].missing if note.name in known else ()
    lines = [f"it needs {key}: capd secret set {key}" for key in keys]
    return [*lines, f"{'then' if lines else 'to try again'}: capd enable {note.name}{at}"]


def _lacking(name: str, keys: Sequence[str]) -> list[str]:
    return [f"if {name} was meant, it needs {key}: capd secret set {key}" for key in keys]


def _if_meant(name: str, known: Mapping[str, CapabilityFacts], at: str) -> list[str]:
    lines = [f"if {name} was meant: capd enable {name}{at}"]
    triggers = known[name].triggers if name in known else ()
    if triggers:
        lines.append(f"or say one of its triggers, such as {triggers[0]!r}")
    return lines


def _left_out(
    note: DecisionNote, known: Mapping[str, CapabilityFacts], *, named: bool
) -> list[str]:
    lines: list[str] = []
    if note.left_out.get("missing_secrets") and not named:
        waiting = [(name, each) for name, each in known.items() if each.missing]
        for name, each in waiting[:MOST_NAMED]:
            keys = ", ".join(each.missing)
            lines.append(
                f"{name} was left out for want of {keys}: capd secret set {each.missing[0]}"
            )
        more = len(waiting) - MOST_NAMED
        if more > 0:
            lines.append(f"and {more} more for want of secrets: capd secret list")
    if count := note.left_out.get("domain"):
        lines.append(
            f"{count} are for other domains than this session's: see `domain` in config.toml"
        )
    return lines
