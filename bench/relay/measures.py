"""The measures of one subject: how long a call takes, how many go through in a second."""

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.relay.line_wire import WireError
from bench.relay.subjects import ANSWER_TIMEOUT, Subject, check_reply


@dataclass(frozen=True, slots=True)
class Workload:
    """A kind of call."""

    name: str
    size: int
    request_bytes: int
    calls: int
    """The number of calls in one round."""
    is_result: bool = True
    """Whether the size in its name is that of the result; otherwise it is the request's."""


WORKLOADS = (
    Workload("100 B", 100, 0, 200),
    Workload("10 KB", 10_000, 0, 200),
    Workload("1 MB", 1_000_000, 0, 12),
    Workload("1 MB request", 100, 1_000_000, 12, is_result=False),
)
IN_FLIGHT = (1, 8, 32)
_WARM_UP = 3


def latencies(subject: Subject, workload: Workload, calls: int) -> list[float]:
    """Return the milliseconds from a call's first byte to its answer's last, one by one.

    Raises:
        WireError: a call failed, or was not answered in time.
    """
    tail = subject.tail(workload.size, workload.request_bytes)
    taken: list[float] = []
    for number in range(calls + _WARM_UP):
        message_id, message = subject.next_call(tail)
        deadline = time.monotonic() + ANSWER_TIMEOUT
        began_at = time.perf_counter()
        subject.wire.send(message, deadline)
        while True:
            lines = subject.wire.receive(deadline)
            took = (time.perf_counter() - began_at) * 1000
            # Parsed after its time was taken, so that parsing does not count.
            if any(check_reply(line, message_id, workload.size) for line in lines):
                break
        if number >= _WARM_UP:
            taken.append(took)
    return taken


def throughput(subject: Subject, in_flight: int, seconds: float) -> float:
    """Return calls of 100 B per second, with this many in progress at any time.

    Raises:
        WireError: a call failed, or was not answered in time.
    """
    size = WORKLOADS[0].size
    tail = subject.tail(size, 0)
    replies: list[bytes] = []
    sent: list[int] = []

    def send_one() -> None:
        message_id, message = subject.next_call(tail)
        sent.append(message_id)
        subject.wire.send(message, deadline)

    deadline = time.monotonic() + ANSWER_TIMEOUT
    began_at = time.perf_counter()
    for _ in range(in_flight):
        send_one()
    while (now := time.perf_counter()) - began_at < seconds:
        for line in subject.wire.receive(deadline):
            if b'"id":' in line:
                replies.append(line)
                send_one()
    per_second = len(replies) / (now - began_at)
    while len(replies) < len(sent):
        replies += [line for line in subject.wire.receive(deadline) if b'"id":' in line]
    _check_all(replies, sent, size)
    return per_second


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of them do not exceed."""
    ordered = sorted(values)
    if share == 0.5:
        return statistics.median(ordered)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _check_all(replies: list[bytes], sent: list[int], size: int) -> None:
    """Check that each call was answered once, with its own answer."""
    wanted = set(sent)
    for line in replies:
        message_id = json.loads(line).get("id")
        if message_id not in wanted:
            raise WireError(f"an answer to nothing that was asked: {line[:100]!r}")
        wanted.remove(message_id)
        check_reply(line, message_id, size)
