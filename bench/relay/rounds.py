"""The rows of a run, measured in turns: A B C, B C A, ..., so that a busy moment hits all alike."""

import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from bench.relay import process_trees
from bench.relay.installs import NotInstalledError
from bench.relay.line_wire import WireError
from bench.relay.measures import IN_FLIGHT, WORKLOADS, Workload, latencies, throughput
from bench.relay.process_trees import Memory
from bench.relay.subjects import Subject

_QUIET = 12.0
"""Seconds from the last call until memory is measured: time for the processes to tidy up."""


@dataclass(slots=True)
class Row:
    """One way to the server, with its measurements."""

    name: str
    language: str
    open: Callable[[], Subject]
    owned: int = 1
    """How many of the subject's first roots end with it. Its others, as capd's daemon, serve
    several rows."""
    note: str = ""
    why_not: str = ""
    """Why the row has no figures."""
    subject: Subject | None = None
    troubles: dict[str, str] = field(default_factory=dict)
    latency: dict[str, list[list[float]]] = field(default_factory=dict)
    per_second: dict[int, list[float]] = field(default_factory=dict)
    relay_cpu_ms: list[float] = field(default_factory=list)
    driver_cpu_ms: list[float] = field(default_factory=list)
    initialize_ms: list[float] = field(default_factory=list)
    first_call_ms: list[float] = field(default_factory=list)
    relay_memory: Memory = field(default_factory=Memory)
    model_memory: Memory = field(default_factory=Memory)
    server_memory: Memory = field(default_factory=Memory)

    def start(self) -> None:
        """Open the subject, or note why it cannot be opened."""
        try:
            self.subject = self.open()
        except (WireError, NotInstalledError, OSError) as error:
            self.why_not = self.why_not or str(error)
            self.subject = None
            say(f"{self.name}: {error}")
            return
        self.initialize_ms.append(self.subject.initialize_ms)
        self.first_call_ms.append(self.subject.first_call_ms)

    def end(self) -> None:
        """Close the connection and end the processes that were started for it."""
        if self.subject is not None:
            self.subject.wire.close()
            process_trees.end_trees(self.subject.roots[: self.owned])
            self.subject = None

    def try_measure(self, what: str, measure: Callable[[Subject], None]) -> None:
        """Measure, unless that has failed before; a subject that failed is started anew."""
        if self.subject is None or what in self.troubles:
            return
        try:
            measure(self.subject)
        except (WireError, OSError, ValueError, KeyError) as error:
            self.troubles[what] = str(error) or type(error).__name__
            say(f"{self.name}, {what}: {self.troubles[what]}")
            self.end()
            self.start()


def play(rows: list[Row], number: int, share: float, seconds: float) -> None:
    """Measure each row once, with `share` of the calls of a full round."""
    first = number % len(rows)
    for row in [*rows[first:], *rows[:first]]:
        for workload in WORKLOADS:
            calls = max(3, round(workload.calls * share))
            row.try_measure(workload.name, partial(_one_by_one, row, workload, calls))
        for in_flight in IN_FLIGHT:
            row.try_measure(f"{in_flight} in flight", partial(_at_once, row, in_flight, seconds))


def weigh(rows: Iterable[Row]) -> None:
    """Note the memory of each row's processes when they are idle after the calls."""
    time.sleep(_QUIET)
    for row in rows:
        if row.subject is not None:
            row.relay_memory = process_trees.memory(row.subject.relay_pids())
            row.model_memory = process_trees.memory(row.subject.model_pids())
            row.server_memory = process_trees.memory(row.subject.server_pids())


def say(text: str) -> None:
    """Print the progress of the run."""
    print(text, file=sys.stderr, flush=True)


def _one_by_one(row: Row, workload: Workload, calls: int, subject: Subject) -> None:
    relay = subject.relay_pids()
    relay_before, driver_before = process_trees.cpu_seconds(relay), time.process_time()
    taken = latencies(subject, workload, calls)
    if workload is WORKLOADS[0]:
        relay_after, driver_after = process_trees.cpu_seconds(relay), time.process_time()
        row.relay_cpu_ms.append((relay_after - relay_before) * 1000 / len(taken))
        row.driver_cpu_ms.append((driver_after - driver_before) * 1000 / len(taken))
    row.latency.setdefault(workload.name, []).append(taken)


def _at_once(row: Row, in_flight: int, seconds: float, subject: Subject) -> None:
    row.per_second.setdefault(in_flight, []).append(throughput(subject, in_flight, seconds))
