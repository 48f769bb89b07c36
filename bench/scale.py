"""What sessions cost the daemon: `python -m bench.scale`.

Opens 1, 100, 1,000 and 5,000 sessions straight on the socket from one process, each with its MCP
handshake done. At each count it measures the daemon's memory and descriptors, the latency of one
session's calls, and that of calls from 50 sessions at once. Then 500 sessions make 20 calls each
through the one server that they share. Prints a table, and one line of JSON.
"""

import argparse
import json
import resource
import select
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.relay import process_trees
from bench.relay.capd_home import CapdHome
from bench.relay.line_wire import LineWire, WireError
from bench.relay.measures import WORKLOADS, latencies, quantile
from bench.relay.rounds import say
from bench.relay.running import end_on_signals
from bench.relay.subjects import (
    ANSWER_TIMEOUT,
    Subject,
    check_reply,
    is_model,
    open_capd_socket,
)

COUNTS = (1, 100, 1000, 5000)
_CALLERS = 50
_CALLS = 500
_CALLS_OF_EACH = 20
_SHARING_SESSIONS = 500
_SHARING_CALLS = 20
_IDLE_WATCHED = 3.0
_SETTLED = 1.0
_PARKED = 25.0
"""Seconds after which the connections of silent clients are parked (docs/design/actors.md)."""
_BUDGET = 300.0
_SPARE_DESCRIPTORS = 500


@dataclass(frozen=True, slots=True)
class Step:
    """The measurements of a daemon with a number of sessions."""

    sessions: int
    pss_mb: float
    rss_mb: float
    descriptors: int
    idle_cpu_percent: float
    p50_ms: float
    p99_ms: float
    together_p50_ms: float
    together_p99_ms: float
    together_per_second: float
    opened_per_second: float


@dataclass(frozen=True, slots=True)
class Together:
    """Calls from several sessions at once, one in progress in each."""

    p50_ms: float
    p99_ms: float
    per_second: float
    seconds: float
    errors: int
    first_error: str


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    options.add_argument("--most", type=int, default=COUNTS[-1], help="the largest count")
    options.add_argument("--json", type=Path, help="write the figures to this file too")
    chosen = options.parse_args()
    process_trees.adopt_orphans()
    end_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="capd-bench-scale-"))
    try:
        return _scale(folder, chosen.most, chosen.json)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        process_trees.end_everything()
        shutil.rmtree(folder, ignore_errors=True)


def idle_kb_per_session(home: CapdHome, sessions: int) -> float:
    """Return the KB (1,024 bytes) that each further session adds to the daemon's PSS.

    Raises:
        WireError: a session was refused.
    """
    _allow_descriptors(sessions)
    opened = _more(home, [], 1)
    # The first hundred also make what all share: buffers, caches, arenas of the allocator.
    opened = _more(home, opened, 100)
    time.sleep(_PARKED)
    before = _settled_pss(home)
    opened = _more(home, opened, sessions)
    time.sleep(_PARKED)
    after = _settled_pss(home)
    for subject in opened:
        subject.wire.close()
    return round((after - before) * 1e6 / 1024 / (sessions - 100), 1)


def _scale(folder: Path, most: int, output: Path | None) -> int:
    home = CapdHome(folder)
    _allow_descriptors(most)
    home.start()
    model = home.load_model()
    steps: list[Step] = []
    opened: list[Subject] = []
    callers: list[Subject] = []
    for count in [each for each in COUNTS if each <= most]:
        say(f"{count} sessions")
        began_at = time.perf_counter()
        before = len(opened)
        opened = _more(home, opened, count)
        rate = (count - before) / (time.perf_counter() - began_at)
        memory, cpu = _at_rest(home)
        if not callers or len(callers) < min(_CALLERS, count):
            callers = [_enabled(subject) for subject in opened[:_CALLERS]]
        alone = latencies(callers[0], WORKLOADS[0], _CALLS)
        together = _called_together(callers, _CALLS_OF_EACH)
        steps.append(
            Step(
                sessions=count,
                pss_mb=memory.pss_mb,
                rss_mb=memory.rss_mb,
                descriptors=process_trees.descriptors(_daemon(home)),
                idle_cpu_percent=cpu,
                p50_ms=quantile(alone, 0.5),
                p99_ms=quantile(alone, 0.99),
                together_p50_ms=together.p50_ms,
                together_p99_ms=together.p99_ms,
                together_per_second=together.per_second,
                opened_per_second=rate,
            )
        )
    shared = None
    if most >= _SHARING_SESSIONS:
        say(f"{_SHARING_SESSIONS} sessions with {_SHARING_CALLS} calls each")
        sharing = [_enabled(subject) for subject in opened[:_SHARING_SESSIONS]]
        shared = _called_together(sharing, _SHARING_CALLS)
    memory, _ = _at_rest(home)
    _print(steps, shared, memory, model, output)
    return 0


def _print(
    steps: list[Step],
    shared: Together | None,
    memory: process_trees.Memory,
    model: str,
    output: Path | None,
) -> None:
    titles = ["sessions", "PSS MB", "RSS MB", "KB each", "fds", "idle CPU %", "p50 ms", "p99 ms"]
    titles += ["50: p50", "50: p99", "50: calls/s", "opened/s"]
    print("".join(f"{title:>12}" for title in titles))
    document = []
    for step in steps:
        further = step.sessions - steps[0].sessions
        kb = (step.pss_mb - steps[0].pss_mb) * 1e6 / 1024 / further if further else 0.0
        cells = [step.pss_mb, step.rss_mb, kb, step.descriptors, step.idle_cpu_percent]
        cells += [step.p50_ms, step.p99_ms, step.together_p50_ms, step.together_p99_ms]
        cells += [round(step.together_per_second), round(step.opened_per_second)]
        shown = [f"{cell:.2f}" if isinstance(cell, float) else f"{cell}" for cell in cells]
        print(f"{step.sessions:>12}" + "".join(f"{each:>12}" for each in shown))
        document.append({**asdict(step), "kb_each": kb})
    if shared is not None:
        total = _SHARING_SESSIONS * _SHARING_CALLS
        print(
            f"{total} calls of {_SHARING_SESSIONS} sessions at once: {shared.seconds:.1f} s, "
            f"{shared.errors} errors, daemon's RSS then {memory.rss_mb:.0f} MB; model: {model}"
        )
        if shared.errors:
            print(f"the first of them: {shared.first_error}")
    whole = {
        "schema": 1,
        "began": time.strftime("%Y-%m-%d %H:%M"),
        "steps": [{k: round(v, 3) for k, v in step.items()} for step in document],
        "shared": None if shared is None else asdict(shared),
        "rss_mb_after": memory.rss_mb,
    }
    print(json.dumps(whole))
    if output is not None:
        output.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def _more(home: CapdHome, opened: list[Subject], count: int) -> list[Subject]:
    give_up_at = time.monotonic() + _BUDGET
    for number in range(len(opened), count):
        if time.monotonic() > give_up_at:
            raise WireError(f"{number} of {count} sessions were open after {_BUDGET:g} s")
        name = f"bench-{number}"
        opened.append(open_capd_socket(home, name, name, is_enabled=False))
    return opened


def _enabled(subject: Subject) -> Subject:
    asked = {"name": "capability", "arguments": {"action": "enable", "name": "echo"}}
    subject.ask("tools/call", asked)
    subject.ask("tools/call", {"name": subject.tool, "arguments": {"size": 10}})
    return subject


def _called_together(callers: list[Subject], calls: int) -> Together:
    """Keep one call in progress in each session until each has made `calls` calls."""
    size = WORKLOADS[0].size
    by_fd = {_descriptor(subject): subject for subject in callers}
    under_way: dict[int, tuple[int, float]] = {}
    left = dict.fromkeys(by_fd, calls)
    taken: list[float] = []
    errors: list[str] = []
    ready = select.poll()
    deadline = time.monotonic() + ANSWER_TIMEOUT * 3
    began_at = time.perf_counter()

    def call(fd: int) -> None:
        left[fd] -= 1
        message_id, message = by_fd[fd].next_call(by_fd[fd].tail(size, 0))
        under_way[fd] = (message_id, time.perf_counter())
        by_fd[fd].wire.send(message, deadline)

    for fd in by_fd:
        ready.register(fd, select.POLLIN)
        call(fd)
    while under_way:
        events = ready.poll(max(0, int((deadline - time.monotonic()) * 1000)))
        if not events:
            raise WireError(f"{len(under_way)} calls of {len(callers)} sessions were not answered")
        for fd, _ in events:
            now = time.perf_counter()
            for line in by_fd[fd].wire.receive(deadline):
                message_id, sent_at = under_way[fd]
                try:
                    if not check_reply(line, message_id, size):
                        continue
                except WireError as error:
                    errors.append(str(error))
                taken.append((now - sent_at) * 1000)
                del under_way[fd]
                if left[fd]:
                    call(fd)
    seconds = time.perf_counter() - began_at
    return Together(
        p50_ms=quantile(taken, 0.5),
        p99_ms=quantile(taken, 0.99),
        per_second=len(taken) / seconds,
        seconds=seconds,
        errors=len(errors),
        first_error=errors[0] if errors else "",
    )


def _at_rest(home: CapdHome) -> tuple[process_trees.Memory, float]:
    """Return the memory of an idle daemon without its model, and its percentage of a CPU."""
    time.sleep(_PARKED)
    pids = _own(home)
    before = process_trees.cpu_seconds(pids)
    time.sleep(_IDLE_WATCHED)
    cpu = (process_trees.cpu_seconds(pids) - before) / _IDLE_WATCHED * 100
    return process_trees.memory([_daemon(home)]), cpu


def _settled_pss(home: CapdHome) -> float:
    time.sleep(_SETTLED)
    return statistics.median(process_trees.memory([_daemon(home)]).pss_mb for _ in range(3))


def _descriptor(subject: Subject) -> int:
    assert isinstance(subject.wire, LineWire)
    return subject.wire.fileno()


def _daemon(home: CapdHome) -> int:
    assert home.daemon is not None
    return home.daemon.pid


def _own(home: CapdHome) -> list[int]:
    return [pid for pid in process_trees.tree([_daemon(home)]) if not is_model(pid)]


def _allow_descriptors(sessions: int) -> None:
    """Let this process, and the daemon that it starts, open a socket for each session."""
    wanted = sessions * 2 + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise SystemExit(f"{sessions} sessions need {wanted} descriptors, and {hard} are allowed")
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
