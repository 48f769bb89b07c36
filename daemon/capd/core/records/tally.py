"""Counters and histograms of what happened since the daemon started.

Names that come from outside, such as those of servers, become labels of metrics, so their number is
bounded: those after the first `MOST_NAMES` of a kind are counted as `other`
(docs/design/operation.md).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from capd_protos.ledger import ActivationNote, CallNote, DecisionNote, Note, ScriptNote, SessionNote

MOST_NAMES = 100
OTHER = "other"
LONGEST_NAME = 64
CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 600.0)
"""The upper bounds for the durations of calls, in seconds. capd adds half a millisecond to a call,
and a long one may take minutes."""
DECISION_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


@dataclass(slots=True)
class Histogram:
    """How many values fell between each two neighbouring bounds, and the sum of all values."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    """One count for each bound, and one more for values over the last; not cumulative."""
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value, for example the seconds that a call took."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Names:
    """The names that are counted separately; every other name is counted as `other`."""

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._labels: dict[str, str] = {}
        self._most = most

    def label(self, name: str) -> str:
        """Return the name to count under: `name`, or `other` once there are too many names."""
        label = self._labels.get(name)
        if label is None:
            if len(self._labels) >= self._most:
                return OTHER
            label = self._labels[name] = _printable(name)
        return label


class Tally:
    """Counts of calls, decisions and sessions since the daemon started, for the metrics."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        """The number of calls by server and outcome."""
        self.call_seconds: dict[str, Histogram] = {}
        """How long calls took, in seconds, by server."""
        self.call_bytes: Counter[tuple[str, str]] = Counter()
        """The bytes of calls by server and direction: `in` for arguments, `out` for results."""
        self.decisions: Counter[tuple[str, str]] = Counter()
        """The number of routing decisions by outcome and reason."""
        self.decision_seconds = Histogram(DECISION_BOUNDS)
        self.activations: Counter[str] = Counter()
        """The number of activations by action, such as `on`."""
        self.sessions: Counter[tuple[str, str]] = Counter()
        """The number of sessions by client, and by whether they started or ended."""
        self._servers, self._clients = Names(), Names()
        # Outcomes are capd's own words, but several parts write them, so they are bounded too.
        self._words = Names()

    def note(self, note: Note) -> None:
        """Count the event that a note for the ledger describes."""
        match note:
            case CallNote():
                self._called(note)
            case DecisionNote():
                word = self._words.label
                self.decisions[word(note.outcome), word(note.reason)] += 1
                self.decision_seconds.add(note.ms / 1000)
            case ActivationNote():
                self.activations[self._words.label(note.action)] += 1
            case SessionNote():
                client = self._clients.label(note.client)
                self.sessions[client, self._words.label(note.action)] += 1
            case ScriptNote():
                # A script's calls have notes of their own, by which they are counted.
                pass

    def _called(self, note: CallNote) -> None:
        server = self._servers.label(note.server)
        self.calls[server, self._words.label(note.outcome)] += 1
        self.call_bytes[server, "in"] += note.bytes_in
        self.call_bytes[server, "out"] += note.bytes_out
        seconds = self.call_seconds.get(server)
        if seconds is None:
            seconds = self.call_seconds[server] = Histogram(CALL_BOUNDS)
        seconds.add(note.ms / 1000)


def _printable(name: str) -> str:
    """Return a name with `?` for each control character, cut to `LONGEST_NAME`."""
    return "".join(each if each.isprintable() else "?" for each in name[:LONGEST_NAME])
