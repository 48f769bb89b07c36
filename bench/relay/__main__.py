"""Compares capd with a direct connection and with other relays: `python -m bench.relay`.

In each row of the tables, calls reach the same small Node server: directly, through capd, or
through another relay. One driver measures all rows in turns, so ratios can be trusted even where
the times of the machine vary. Prints tables to standard output.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench import scale
from bench.relay import figures, own_time, peers, process_trees, subjects
from bench.relay.capd_home import CapdHome
from bench.relay.line_wire import WireError
from bench.relay.rounds import Row, play, say, weigh
from bench.relay.running import end_on_signals

_STARTS = 3
_SECONDS = 0.5
_IDLE_SESSIONS = 1000
_ROUNDS, _QUICK_ROUNDS = 10, 2
_QUICK_SHARE = 0.25


def main() -> int:
    chosen = _options()
    process_trees.adopt_orphans()
    end_on_signals()
    root = Path(tempfile.mkdtemp(prefix="capd-bench-"))
    try:
        if chosen.profile:
            return own_time.main(root, chosen.calls)
        return _compare(root, chosen)
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    finally:
        process_trees.end_everything()
        shutil.rmtree(root, ignore_errors=True)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m bench.relay", description=__doc__)
    options.add_argument("--rounds", type=int, help="10, or 2 with --quick")
    options.add_argument("--quick", action="store_true", help="short rounds, 1 start")
    options.add_argument("--no-idle", action="store_true", help="leave out 1,000 idle sessions")
    options.add_argument("--only", help="names of peers with commas, or none")
    options.add_argument("--json", type=Path, help="write all figures to this file")
    options.add_argument("--profile", action="store_true", help="show where capd's own time goes")
    options.add_argument("--calls", type=int, default=10_000, help="calls of the profile")
    chosen = options.parse_args()
    known = {peer.name for peer in peers.PEERS}
    if chosen.only and (unknown := set(chosen.only.split(",")) - known - {"none"}):
        options.error(f"no peer {', '.join(sorted(unknown))}: one of {', '.join(sorted(known))}")
    return chosen


def _compare(root: Path, chosen: argparse.Namespace) -> int:
    began = time.strftime("%Y-%m-%d %H:%M")
    load_before = os.getloadavg()[0]
    home = CapdHome(_folder(root, "capd"))
    home.start()
    model = home.load_model()
    rows = _rows(root, home, set(chosen.only.split(",")) if chosen.only else None)
    for row in rows:
        say(f"starting {row.name}")
        row.start()
    rounds = chosen.rounds or (_QUICK_ROUNDS if chosen.quick else _ROUNDS)
    share = _QUICK_SHARE if chosen.quick else 1.0
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        play(rows, number, share, _SECONDS * share)
    weigh(rows)
    for row in rows:
        row.end()
    for number in range(0 if chosen.quick else _STARTS - 1):
        say(f"starts, {number + 2} of {_STARTS}")
        for row in rows:
            if not row.why_not:
                row.start()
                row.end()
    cold = _cold_start(root)
    idle_kb = None if chosen.no_idle else _idle_kb(root)
    measured = {row.name: figures.figures_of(row) for row in rows}
    accepted = figures.acceptance(measured, idle_kb)
    load = f"load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"{began}, {os.cpu_count()} cores, {load}; {rounds} rounds; capd's model: {model}")
    for line in figures.tables(measured):
        print(line)
    print(f"\ncapd with no daemon running: first call after {cold or '-'} ms")
    for line in figures.acceptance_lines(accepted):
        print(line)
    if chosen.json:
        document = {
            "schema": 1,
            "began": began,
            "tree": _tree(),
            "machine": _machine(),
            "cores": os.cpu_count(),
            "load": [load_before, os.getloadavg()[0]],
            "python": sys.version.split()[0],
            "rounds": rounds,
            "rows": measured,
            "added_p50_ms": figures.added(measured),
            "capd_cold_first_call_ms": cold,
            "idle_kb_per_session": idle_kb,
            "acceptance": accepted,
        }
        chosen.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def _rows(root: Path, home: CapdHome, only: set[str] | None) -> list[Row]:
    def direct() -> subjects.Subject:
        folder = _folder(root, subjects.DIRECT)
        return subjects.open_peer(subjects.DIRECT, "Node", peers.direct(), folder, 0)

    def through_socket() -> subjects.Subject:
        session = f"bench-{time.monotonic_ns()}"
        return subjects.open_capd_socket(home, subjects.CAPD_SOCKET, session)

    rows = [
        Row(subjects.DIRECT, "Node", direct),
        Row(subjects.CAPD, "Python", lambda: subjects.open_capd(home, subjects.CAPD)),
        Row(subjects.CAPD_SOCKET, "Python", through_socket, owned=0),
    ]
    chosen = [peer for peer in peers.PEERS if only is None or peer.name in only]
    return rows + [
        Row(peer.name, peer.language, _opener(root, peer), note=peer.note) for peer in chosen
    ]


def _opener(root: Path, peer: peers.Peer) -> Callable[[], subjects.Subject]:
    def opened() -> subjects.Subject:
        commands = peer.install()
        folder = _folder(root, peer.name)
        port = subjects.free_port()
        launch = peer.launch(commands, folder, port)
        return subjects.open_peer(peer.name, peer.language, launch, folder, port)

    return opened


def _folder(root: Path, name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{name.replace(' ', '-')}-", dir=root))


def _tree() -> str:
    """Return the commit that is measured, or the version where there is no checkout."""
    asked = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return done.stdout.strip() or importlib.metadata.version("capd")


def _machine() -> str:
    """Return the kind of processor and the system, without the machine's name."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {platform.system()}"
    return f"{platform.machine()}, {platform.system()}"


def _cold_start(root: Path) -> float | None:
    """Return the ms to a first call if the shim has to start the daemon."""
    home = CapdHome(_folder(root, "cold"))
    try:
        subject = subjects.open_capd(home, "cold")
        home.ask("stop")
    except WireError as error:
        say(f"cold start: {error}")
        return None
    subject.wire.close()
    return round(subject.first_call_ms, 1)


def _idle_kb(root: Path) -> float | None:
    home = CapdHome(_folder(root, "idle"))
    home.start()
    # Otherwise the memory of the catalog's vectors would count for the sessions.
    home.load_model()
    try:
        return scale.idle_kb_per_session(home, _IDLE_SESSIONS)
    except (WireError, OSError) as error:
        say(f"idle sessions: {error}")
        return None


if __name__ == "__main__":
    sys.exit(main())
