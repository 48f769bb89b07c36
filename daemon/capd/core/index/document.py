"""One capability in capability-index.yaml: capd's values, and those that a person changed.

The key `written` of an entry has a short digest of each text and setting as capd wrote it last. A
value that does not match its digest was set by a person, and stays. Facts, such as costs, are
overwritten. Everything else in the file stays.
"""

import hashlib
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from capd_protos.index import IndexEntry

SCHEMA = 1
DIGEST = "digest"
WRITTEN = "written"
_DIGITS = 8
FACTS = ("next", "cost", "elements", "metrics")
OWN_WORDS = ("verb", "do", "use_when")
ACTIVATION = "activation"
OWN_ACTIVATION = ("automatic", "threshold", "priority", "triggers")
LONGEST = 400
"""The most characters of a person's text that are used."""

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """The values that the index file has for a capability besides those of its `IndexEntry`."""

    call: str = ""
    """The call that switches the capability on."""
    tools: Sequence[str] = ()
    skills: Sequence[str] = ()
    memories: Sequence[str] = ()
    triggers: Sequence[str] = ()
    successes: int = 0
    mean_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Overrides:
    """The values in capability-index.yaml that a person has set for one capability."""

    values: Mapping[str, Any] = field(default_factory=dict)
    """The values by key. The keys are those in `OWN_WORDS` and `OWN_ACTIVATION`."""

    def __len__(self) -> int:
        return len(self.values)


def file_entry(entry: IndexEntry, parts: Parts) -> Values:
    """Return the entry of a capability in capability-index.yaml, its keys in the file's order."""
    rate = round(parts.successes / entry.uses, 3) if entry.uses else None
    return {
        "verb": entry.verb,
        "do": entry.do,
        "use_when": list(entry.use_when),
        "next": parts.call,
        "cost": {"tools": entry.tools, "tokens": entry.tokens},
        ACTIVATION: {
            "automatic": entry.is_automatic,
            "threshold": entry.threshold,
            "priority": entry.priority,
            "triggers": list(parts.triggers),
        },
        "elements": {
            "tools": list(parts.tools),
            "skills": list(parts.skills),
            "memories": list(parts.memories),
        },
        "metrics": {
            "uses": entry.uses,
            "success_rate": rate,
            "mean_ms": round(parts.mean_ms, 1) if entry.uses else None,
            "token_cost": entry.tokens,
        },
    }


def with_digests(values: Values) -> Values:
    """Return `values` with the digests by which a person's later changes are recognised."""
    written = {key: short_digest(values[key]) for key in OWN_WORDS}
    written |= {key: short_digest(values[ACTIVATION][key]) for key in OWN_ACTIVATION}
    return {DIGEST: short_digest(values), **values, WRITTEN: written}


def merge(old: MutableMapping[str, Any], new: Values) -> None:
    """Update `old`, the entry in the file, to `new`, but keep the values that a person has set.

    `new` is a result of `with_digests`.
    """
    kept = overrides(old).values
    old[DIGEST] = new[DIGEST]
    written = old.get(WRITTEN)
    if not isinstance(written, MutableMapping):
        written = old[WRITTEN] = {}
    activation = old.get(ACTIVATION)
    if not isinstance(activation, MutableMapping):
        activation = old[ACTIVATION] = {}
    for keys, place, source in (
        (OWN_WORDS, old, new),
        (OWN_ACTIVATION, activation, new[ACTIVATION]),
    ):
        for key in keys:
            if key in kept:
                continue
            if place.get(key) != source[key] or key not in place:
                place[key] = source[key]
            written[key] = new[WRITTEN][key]
    for key in FACTS:
        fact = old.get(key)
        if isinstance(fact, MutableMapping) and isinstance(new[key], dict):
            fact.update({k: v for k, v in new[key].items() if k not in fact or fact[k] != v})
        else:
            old[key] = new[key]


def overrides(old: Mapping[str, Any]) -> Overrides:
    """Return the values that a person has set in one capability's entry."""
    written = old.get(WRITTEN)
    digests = written if isinstance(written, Mapping) else {}
    activation = old.get(ACTIVATION)
    places = (
        (OWN_WORDS, old),
        (OWN_ACTIVATION, activation if isinstance(activation, Mapping) else {}),
    )
    found = {
        key: place[key]
        for keys, place in places
        for key in keys
        if key in place and digests.get(key) != short_digest(place[key])
    }
    return Overrides(found)


def with_overrides(entry: IndexEntry, own: Overrides) -> IndexEntry:
    """Return an entry with a person's values; values of a wrong type are ignored."""
    values = own.values
    changed: dict[str, Any] = {}
    for key in ("verb", "do"):
        if isinstance(text := values.get(key), str) and text.strip():
            changed[key] = text.strip()[:LONGEST]
    if isinstance(phrases := values.get("use_when"), Sequence) and not isinstance(phrases, str):
        changed["use_when"] = [str(each)[:LONGEST] for each in phrases]
    if isinstance(automatic := values.get("automatic"), bool):
        changed["is_automatic"] = automatic
    threshold, priority = values.get("threshold"), values.get("priority")
    if isinstance(threshold, int | float) and not isinstance(threshold, bool):
        changed["threshold"] = float(threshold)
    if isinstance(priority, int) and not isinstance(priority, bool):
        changed["priority"] = priority
    return msgspec.structs.replace(entry, **changed) if changed else entry


def has_edits(old: Mapping[str, Any]) -> bool:
    """Tell whether a person changed a value or added a key in one capability's entry."""
    known = {DIGEST, WRITTEN, ACTIVATION, *OWN_WORDS, *FACTS}
    return bool(overrides(old)) or bool(set(old) - known)


def short_digest(value: object) -> str:
    """Return a digest of a value; the types of mappings and lists make no difference."""
    text = msgspec.json.encode(_plain(value), order="sorted")
    return hashlib.sha256(text).hexdigest()[:_DIGITS]


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, str | bool | int | float | None):
        # A YAML library adds format marks to texts and numbers; they are not part of the value.
        kinds = (bool, int, float, str)
        return next((kind(value) for kind in kinds if isinstance(value, kind)), None)
    if isinstance(value, Sequence):
        return [_plain(each) for each in value]
    return str(value)
