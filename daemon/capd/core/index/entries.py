"""The entry of a capability, and the order of entries."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from capd.core.index.extraction import extracted
from capd.core.index.trigger_map import HEAD
from capd_protos.finder import CapabilityTools
from capd_protos.index import IndexEntry


@dataclass(frozen=True, slots=True)
class Facts:
    """What the ledger knows of a capability."""

    uses: int = 0
    successes: int = 0
    mean_ms: float = 0.0


def entry_of(described: CapabilityTools, facts: Facts) -> IndexEntry:
    """Return the entry of a capability, in the words of its tap."""
    spec = described.capability
    words = extracted(spec, described.tools or ())
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


def in_order(entries: Iterable[IndexEntry]) -> list[IndexEntry]:
    """Return entries by a person's priority, then by use, then in the order of their taps."""
    return sorted(entries, key=lambda entry: (-entry.priority, -entry.uses))


def told_words(entry: IndexEntry) -> Iterator[str]:
    """Yield the words of an entry as they appear in what sessions receive.

    The space before a word belongs to the piece that is counted.
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
