"""What a hostile server costs the daemon, and an honest server in the same daemon.

    python bench/reliability.py EVIL_SERVER [MODE...]

Runs one daemon for each mode of the hostile server (EVIL_SERVER), with an honest server in it.
Measures how long a call to the hostile server takes and how it ends, how much the daemon's memory
grows, and the longest time in which the daemon did not answer a ping. The honest server's p99
while the hostile one is called is given as a ratio to its p99 before. Prints a table, and the same
as one line of JSON.
"""

import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from reliability.world import MIB, Memory, Session, World, outcome  # noqa: E402 - its path
from whole_daemon import Home  # noqa: E402 - its path

QUIET_CALLS = 1000
LEAST_CALLS = 200
LONGEST = 60.0
"""Seconds after which a call that has not ended is reported as `nothing`."""


@dataclass(frozen=True)
class Mode:
    """One way of the hostile server to behave."""

    name: str
    options: tuple[str, ...] = ()
    timeout: int | None = None
    """The timeout in the server's definition, in seconds; where calls would not end otherwise."""
    calls: int = 1
    text: str = "x"


MODES = (
    Mode("ok"),
    Mode("bad_names"),
    Mode("ref_bomb"),
    Mode("ref_loop"),
    Mode("redos"),
    Mode("deep_schema"),
    Mode("page_forever"),
    Mode("many_tools", ("--n", "10000")),
    Mode("list_changed_storm"),
    Mode("huge_line", ("--n", "1024")),
    Mode("never_reply", timeout=2),
    Mode("half_reply"),
    Mode("stdout_noise"),
    Mode("bad_utf8"),
    Mode("lone_surrogate"),
    Mode("nan"),
    Mode("deep_json"),
    Mode("dup_reply"),
    Mode("wrong_id", timeout=2),
    Mode("stderr_flood", calls=20),
    Mode("notify_flood", ("--n", "100000")),
    Mode("no_read", timeout=2, calls=90, text="x" * 10_000),
    Mode("die_in_call"),
    Mode("stdout_hold,die_in_call"),
    Mode("crash_start"),
)


@dataclass(frozen=True)
class Measured:
    """The costs of one mode."""

    mode: str
    ended: str
    end_ms: float
    loop_gap_ms: float
    grown_mib: float
    quiet_p99_ms: float
    beside_p99_ms: float
    ratio: float


class Beside:
    """Calls `once` over and over in a thread, and keeps how long each call took."""

    def __init__(self, once: Callable[[], object]) -> None:
        self.took: list[float] = []
        self._once = once
        self._is_over = False
        self._thread = threading.Thread(target=self._repeat)
        self._thread.start()

    def end(self) -> list[float]:
        """Stop, but not before `LEAST_CALLS` calls, and return the milliseconds of each."""
        self._is_over = True
        self._thread.join()
        return self.took

    def _repeat(self) -> None:
        while not self._is_over or len(self.took) < LEAST_CALLS:
            began_at = time.perf_counter()
            self._once()
            self.took.append((time.perf_counter() - began_at) * 1000)


def p99(times: list[float]) -> float:
    return statistics.quantiles(times, n=100)[98]


def ended(session: Session, mode: Mode) -> str:
    """Call the hostile server `mode.calls` times; return the outcome of the last call."""
    if "evil__echo" not in session.tools():
        return "left out"
    calls = [session.begin("evil__echo", {"x": mode.text}) for _ in range(mode.calls)]
    try:
        answers = [session.answer(call, LONGEST) for call in calls]
    except AssertionError:
        return "nothing"
    last = answers[-1]
    return "refused" if "error" in last else outcome(last)


def measured(mode: Mode, evil_server: list[str]) -> Measured:
    """Run a daemon for one mode, and measure it."""
    with tempfile.TemporaryDirectory(prefix="capd", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        home = Home(folder)
        world = World(home, evil_server)
        world.evil(mode.name, *mode.options, timeout=mode.timeout)
        world.start()
        try:
            return _measured(mode, world)
        finally:
            world.close()
            home.close()


def _measured(mode: Mode, world: World) -> Measured:
    user, pinging = world.session("user"), world.session("pinging")
    quiet = Beside(world.ask_neighbour)
    while len(quiet.took) < QUIET_CALLS:
        time.sleep(0.01)
    quiet_p99 = p99(quiet.end())

    memory = Memory(world.process)
    beside = Beside(world.ask_neighbour)
    pings = Beside(lambda: pinging.answer(pinging.ask("ping", {})))
    answer = world.enable("user", "evil")
    began_at = time.perf_counter()
    how = ended(user, mode) if answer["ok"] else "not started"
    end_ms = (time.perf_counter() - began_at) * 1000
    beside_p99 = p99(beside.end())
    gap = max(pings.end())
    return Measured(
        mode=mode.name,
        ended=how,
        end_ms=round(end_ms, 1),
        loop_gap_ms=round(gap, 1),
        grown_mib=round(memory.grown / MIB, 1),
        quiet_p99_ms=round(quiet_p99, 2),
        beside_p99_ms=round(beside_p99, 2),
        ratio=round(beside_p99 / quiet_p99, 2),
    )


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    evil_server = [sys.executable, "-I", "-S", str(Path(sys.argv[1]).resolve())]
    chosen = [mode for mode in MODES if mode.name in sys.argv[2:] or len(sys.argv) == 2]
    columns = ("end ms", "loop gap ms", "grown MiB", "p99 ms", "beside ms", "ratio")
    print(f"{'mode':<26}{'ended':<17}" + "".join(f"{column:>12}" for column in columns))
    results: list[dict[str, Any]] = []
    for mode in chosen:
        got = measured(mode, evil_server)
        figures = list(asdict(got).values())[2:]
        row = "".join(f"{figure:>12}" for figure in figures)
        print(f"{got.mode:<26}{got.ended:<17}{row}", flush=True)
        results.append(asdict(got))
    print(json.dumps({"schema": 1, "modes": results}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
