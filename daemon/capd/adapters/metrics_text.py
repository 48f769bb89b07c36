"""The daemon's metrics in Prometheus' text format.

prometheus_client takes 50 ms to import, so this module is imported in a thread at the first
request.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

from capd.core.records.tally import Histogram, Names, Tally

Document = Mapping[str, Any]
Rows = Iterable[tuple[Sequence[str], float]]


class _Numbers(Collector):
    """Passes metrics that are computed already to prometheus_client."""

    def __init__(self, families: Collection[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Return all metrics."""
        return self._families


def metrics_text(tally: Tally, status: Document) -> str:
    """Return the daemon's metrics, from the counts in `tally` and from `status`."""
    registry = CollectorRegistry()
    families = [*_of_daemon(status["daemon"]), *_of_notes(tally)]
    families += [*_of_sessions(status["sessions"]), *_of_servers(status["servers"])]
    families += _of_ledger(status["ledger"])
    registry.register(_Numbers(families))
    return generate_latest(registry).decode()


def _of_daemon(daemon: Document) -> Iterator[Metric]:
    version = [([str(daemon["version"])], 1.0)]
    yield _gauge("capd_build_info", "The version that runs.", ["version"], version)
    yield _value("capd_uptime_seconds", "Since the daemon began.", daemon["uptime_s"])
    text = "Of the daemon, without its servers."
    yield _value("capd_resident_memory_bytes", text, daemon["rss_bytes"])
    text = "How many things capd status names as degraded."
    yield _value("capd_degraded", text, len(daemon["degraded"]))


def _of_notes(tally: Tally) -> Iterator[Metric]:
    labels = ["server", "outcome"]
    yield _counter("capd_calls", "Tool calls that have ended.", labels, tally.calls.items())
    labels = ["server", "direction"]
    text = "Of arguments (in) and results (out) of tool calls."
    yield _counter("capd_call_bytes", text, labels, tally.call_bytes.items())
    seconds = HistogramMetricFamily(
        "capd_call_duration_seconds", "From a call's arrival to its outcome.", labels=["server"]
    )
    for server, histogram in tally.call_seconds.items():
        seconds.add_metric([server], *_cumulative(histogram))
    yield seconds
    labels = ["outcome", "reason"]
    yield _counter(
        "capd_decisions", "What routing concluded for a message.", labels, tally.decisions.items()
    )
    seconds = HistogramMetricFamily("capd_decision_duration_seconds", "What a decision took.")
    seconds.add_metric([], *_cumulative(tally.decision_seconds))
    yield seconds
    activations = [([action], float(count)) for action, count in tally.activations.items()]
    text = "Capabilities and single tools that were switched on or off, went, or failed to."
    yield _counter("capd_activations", text, ["action"], activations)
    labels = ["client", "action"]
    yield _counter(
        "capd_sessions", "Sessions that have started and ended.", labels, tally.sessions.items()
    )


def _of_sessions(sessions: Sequence[Document]) -> Iterator[Metric]:
    names = Names()
    by_client = Counter([names.label(str(each["client"])) for each in sessions])
    rows = [([client], float(count)) for client, count in by_client.items()]
    yield _gauge("capd_open_sessions", "Sessions that are open.", ["client"], rows)
    for name, key, text in (
        ("capd_tokens", "tokens", "What the lists of all open sessions cost, where it is counted."),
        ("capd_tokens_saved", "tokens_saved", "What they cost less than all tools would."),
    ):
        known = [each[key] for each in sessions if isinstance(each.get(key), int | float)]
        if known:
            yield _value(name, text, sum(known))


def _of_servers(servers: Sequence[Document]) -> Iterator[Metric]:
    by_state = Counter([str(each["state"]) for each in servers])
    rows = [([state], float(count)) for state, count in by_state.items()]
    yield _gauge("capd_instances", "Instances of servers.", ["state"], rows)
    names = Names()
    restarts: Counter[str] = Counter()
    for each in servers:
        restarts[names.label(str(each["name"]))] += each["restarts"]
    rows = [([server], float(count)) for server, count in restarts.items()]
    text = "How often the instances that are known had to be started again."
    yield _gauge("capd_instance_restarts", text, ["server"], rows)


def _of_ledger(ledger: Document | None) -> Iterator[Metric]:
    if ledger is None or not ledger["enabled"]:
        return
    yield _value("capd_ledger_size_bytes", "Of the ledger's file.", ledger["size_bytes"])
    rows = [([table], float(count)) for table, count in ledger["rows"].items()]
    yield _gauge("capd_ledger_rows", "What the ledger has, by kind.", ["table"], rows)
    text = "Notes that are not written yet."
    yield _value("capd_ledger_waiting_notes", text, ledger["waiting"])
    text = "Notes that were lost, because they could not be written for long."
    yield _counter("capd_ledger_dropped_notes", text, [], [([], float(ledger["dropped"]))])


def _counter(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in rows:
        family.add_metric(values, count)
    return family


def _gauge(name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        family.add_metric(values, value)
    return family


def _value(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _cumulative(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    """Return a histogram's buckets with cumulative counts, as Prometheus expects, and its sum."""
    buckets: list[tuple[str, float]] = []
    below = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets, histogram.total
