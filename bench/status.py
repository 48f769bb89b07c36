"""How long `capd status` takes: whole processes, beside a daemon with sessions and servers.

Run as: python bench/status.py [RUNS]. It starts a daemon of its own and twenty sessions, one server
in each of five of them. The daemon's part is asked over one open connection, so what is left is the
start of the command; on a busy machine the CPU time says more than the clock. A completion is
measured in the same way. Prints a table and a JSON line.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from capd_client.control import Control, DaemonDownError
from capd_client.mcp_host import McpHost, without_capd

CAPD = str(Path(sys.executable).with_name("capd"))
SERVER = Path(__file__).parents[1] / "tests" / "whole" / "plain_server.py"
SESSIONS, SERVERS = 20, 5
WANTED_MS = 100.0
PATIENCE = 60.0


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    with tempfile.TemporaryDirectory(prefix="capd") as folder, ExitStack() as stack:
        env = {**without_capd(), "CAPD_HOME": folder}
        tap(Path(folder))
        daemon = subprocess.Popen(
            [CAPD, "daemon", "run"], env=env, stderr=subprocess.DEVNULL, cwd=folder
        )
        stack.callback(daemon.wait)
        stack.callback(daemon.terminate)
        control = ready(f"{folder}/run/capd.sock")
        for at in range(SESSIONS):
            own = {**env, "CAPD_SESSION": f"s{at}"}
            editor = stack.enter_context(McpHost([CAPD, "mcp"], env=own, cwd=folder))
            editor.initialize("bench")
        for at in range(SERVERS):
            control.call("enable", {"session": f"s{at}", "name": f"plain-{at}"})
        while control.call("status")["embedder"]["state"] == "loading":
            time.sleep(0.1)
        completing = {
            **env,
            "_CAPD_COMPLETE": "bash_complete",
            "COMP_WORDS": "capd enable pl",
            "COMP_CWORD": "2",
        }
        figures = {
            "capd status": sampled(runs, run([CAPD, "status"], env)),
            "capd status --json": sampled(runs, run([CAPD, "status", "--json"], env)),
            "capd status --line": sampled(runs, run([CAPD, "status", "--line"], env)),
            "the daemon's part": sampled(runs, lambda: control.call("status")),
            "capd sessions": sampled(runs, run([CAPD, "sessions"], env)),
            "completion of `capd enable`": sampled(runs, run([CAPD], completing)),
            "python alone": sampled(runs, run([sys.executable, "-c", "pass"], env)),
        }
    print(f"load {os.getloadavg()[0]:.1f}, {SESSIONS} sessions, {SERVERS} servers, {runs} runs")
    for name, row in figures.items():
        words = [f"{key.removesuffix('_ms')} {value:7.1f} ms" for key, value in row.items()]
        print(f"{name:30} {'   '.join(words)}")
    is_met = figures["capd status"]["p50_ms"] < WANTED_MS
    print(f"capd status in under {WANTED_MS:.0f} ms: {'met' if is_met else 'MISSED'}")
    print(json.dumps({"schema": 1, "runs": runs, "status": figures}))


def tap(folder: Path) -> None:
    for at in range(SERVERS):
        own = folder / "tap" / "capabilities" / f"plain-{at}"
        own.mkdir(parents=True)
        triggers = [f"use plain {at}", f"run plain {at}", f"ask plain {at}"]
        (own / "config.toml").write_text(f"triggers = {json.dumps(triggers)}\n")
        argv = json.dumps(["-I", str(SERVER), str(at)])
        (own / "default.toml").write_text(
            f'[[mcp.servers]]\nname = "plain-{at}"\ncommand = "{sys.executable}"\nargs = {argv}\n'
        )
    (folder / "config").mkdir()
    listed = f'[[taps]]\nname = "bench"\npath = "{folder / "tap"}"\n'
    (folder / "config" / "taps.toml").write_text(listed)


def run(argv: list[str], env: dict[str, str]) -> Callable[[], None]:
    def once() -> None:
        subprocess.run(argv, env=env, stdout=subprocess.DEVNULL, check=True)

    return once


def sampled(runs: int, act: Callable[[], object]) -> dict[str, float]:
    """Return how long `act` takes, and the CPU time of the processes that it starts, in ms."""
    times, used = [], []
    for _ in range(runs):
        before, started_at = cpu_seconds(), time.perf_counter()
        act()
        times.append((time.perf_counter() - started_at) * 1000)
        used.append((cpu_seconds() - before) * 1000)
    times.sort()
    at_99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    figures = {"p50_ms": statistics.median(times), "p99_ms": at_99}
    return {k: round(v, 1) for k, v in {**figures, "cpu_ms": statistics.median(used)}.items()}


def cpu_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def ready(socket: str) -> Control:
    control = Control(socket)
    give_up_at = time.monotonic() + PATIENCE
    while True:
        try:
            control.connect()
        except DaemonDownError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)
        else:
            return control


if __name__ == "__main__":
    main()
