"""The index entry of a capability, and the order of these entries."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from capd.core.index.extraction import Words, extract_words
from capd.core.index.trigger_map import HEAD
from capd_protos.finder import CapabilityTools
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId


@dataclass(frozen=True, slots=True)
class Facts:
    """What the ledger, which records calls, knows about a capability's use."""

    uses: int = 0
    successes: int = 0
    mean_ms: float = 0.0
    last_at: float = 0.0
    """Seconds since the epoch of the newest call."""


def entry_of(described: CapabilityTools, facts: Facts, words: Words | None = None) -> IndexEntry:
    """Return a capability's index entry with the wording `words`.

    Without `words`, the wording is taken from the texts of its tap (`extract_words`).
    """
    spec = described.capability
    words = words or extract_words(spec, described.tools or ())
    return IndexEntry(
        spec.id,
        words.verb,
        words.do,
        list(words.use_when),
        None if described.tools is None else len(described.tools),
        described.tokens,
        facts.uses,
        domains=list(spec.domains),
    )


def in_order(
    entries: Iterable[IndexEntry],
    fitting: Container[CapabilityId] = (),
    last_at: Mapping[CapabilityId, float] | None = None,
) -> list[IndexEntry]:
    """Return entries sorted by priority, use, fit and recency; equal ones keep their order.

    A person sets the priority. `fitting` are the capabilities with a file pattern that a file of
    the project matches. `last_at` is when each was called last, in seconds since the epoch.
    """
    at = last_at or {}
    return sorted(
        entries,
        key=lambda entry: (
            -entry.priority,
            -entry.uses,
            entry.id not in fitting,
            -at.get(entry.id, 0.0),
        ),
    )


def entry_texts(entry: IndexEntry) -> Iterator[str]:
    """Yield the texts of an entry in the form in which sessions get them.

    The tokens of these texts are counted. A token includes the space before its word, so the texts
    include that space, too.
    """
    yield f"{HEAD}\n{entry.verb}:"
    yield f"\n{entry.verb}:"
    yield f" {entry.id.name},"
    yield f'":"{entry.id.name}"}}'
    yield f" {entry.do}."
    for phrase in entry.use_when:
        yield f' "{phrase}".'
    if entry.tools is not None:
        yield f" COST {entry.tools} tools, {entry.tokens or 0} tokens"


def new_texts(entries: Iterable[IndexEntry], before: Iterable[IndexEntry]) -> Iterator[str]:
    """Yield the texts of those entries that are new, or differ from the ones in `before`."""
    known = {entry.id: entry for entry in before}
    for entry in entries:
        if known.get(entry.id) != entry:
            yield from entry_texts(entry)
