"""What a large catalog costs: `python -m bench.catalog [--counts 10,1000,10000] [--json FILE]`.

For each count, a daemon is started on a tap with that many capabilities. Each has five phrases that
no other has, and all use one small server. The benchmark measures

- the time until routing answers a message, and the time until every phrase has its vector
- turns, and memory
- `capd reload` with nothing changed, and with one capability changed
- `capd caps`
- during each of these phases, the longest time that a ping of an MCP session waited

The last row is a new user's first start, on the starter tap alone. Each target of
docs/benchmarks.md is printed as met or MISSED. With `--tap vectors`, `capd tap build` writes the
vectors of the tap before the daemon starts.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from bench.relay import process_trees
from bench.relay.line_wire import LineWire, WireError
from bench.relay.measures import quantile
from bench.relay.running import Running, end_on_signals, started
from bench.relay.subjects import is_model

from capd_client.control import Control, ControlError, DaemonDownError
from capd_client.mcp_host import without_capd

SERVER = Path(__file__).parents[1] / "tests" / "whole" / "plain_server.py"
COUNTS = (10, 1000, 10_000)
PHRASES = 5
TURNS = 200
PATIENCE = 1800.0
QUIET = 12.0
INDEX_AT_REST = 5.0
"""Seconds without a new index after which the index has everything."""
MODEL_NOT_READY = "model_not_ready"
PING_PAUSE = 0.005

_VERBS = """
list read write find send open check deploy query convert archive rename merge compare publish
schedule translate summarise encrypt restore validate import export measure trace tag review
approve cancel duplicate lock monitor render resize transcode upload verify watch annotate
"""
VERBS = _VERBS.split()
_NOUNS = """
files mails invoices tickets pages tables images builds maps contracts payrolls shipments recipes
playlists branches dashboards certificates backups sensors drawings surveys timesheets podcasts
subtitles prescriptions orders coupons meetings photos firmware genomes lawsuits
"""
NOUNS = _NOUNS.split()
_PLACES = """
warehouse clinic school office studio farm harbour library bakery airport museum factory hotel
garage theatre laboratory newsroom vineyard observatory courthouse gym kitchen
"""
PLACES = _PLACES.split()
_WAYS = """
quickly for-my-boss by-date with-comments as-a-draft before-monday in-bulk per-region without-
duplicates by-customer in-plain-text as-a-report from-last-year for-the-audit
"""
WAYS = _WAYS.split()


@dataclass(slots=True)
class Row:
    """The costs of one catalog, in seconds, milliseconds and MB of 10^6 bytes."""

    catalog: str
    phrases: int
    first_routed_s: float = 0.0
    embedded_s: float = 0.0
    turn_p50_ms: float = 0.0
    turn_p99_ms: float = 0.0
    daemon_mb: float = 0.0
    daemon_peak_mb: float = 0.0
    """The most memory that was resident at any time; shared pages count in full."""
    model_mb: float = 0.0
    reload_unchanged_s: float = 0.0
    reload_one_s: float = 0.0
    caps_s: float = 0.0
    gaps_ms: dict[str, float] = field(default_factory=dict)
    """The longest wait of a ping in each phase, in milliseconds."""


@dataclass(frozen=True, slots=True)
class Target:
    """The limit of one figure, for the largest catalog."""

    name: str
    figure: str
    most: float


TARGETS = (
    Target("first routed answer after the daemon serves, s", "first_routed_s", 1.0),
    Target("turn p50, ms", "turn_p50_ms", 25),
    Target("turn p99, ms", "turn_p99_ms", 60),
    Target("daemon PSS, MB", "daemon_mb", 200),
    Target("reload, one capability changed, s", "reload_one_s", 0.5),
    Target("reload, nothing changed, s", "reload_unchanged_s", 0.05),
    Target("capd caps, s", "caps_s", 0.5),
)
LONGEST_GAP_MS = 50.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.catalog", description=__doc__)
    parser.add_argument("--counts", default=",".join(map(str, COUNTS)))
    parser.add_argument("--tap", choices=("phrases", "vectors"), default="phrases")
    parser.add_argument("--no-starter", action="store_true", help="leave the last row out")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    given = parser.parse_args()
    process_trees.adopt_orphans()
    end_on_signals()
    rows: list[Row] = []
    try:
        for count in [int(each) for each in given.counts.split(",") if each]:
            rows.append(measured(count, has_vectors=given.tap == "vectors"))
            say(rows[-1])
        if not given.no_starter:
            rows.append(measured(0, has_vectors=False))
            say(rows[-1])
    finally:
        process_trees.end_everything()
    print_targets(rows)
    document = {"schema": 1, "tap": given.tap, "rows": [as_document(row) for row in rows]}
    print(json.dumps(document))
    if given.json is not None:
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


def say(row: Row) -> None:
    """Print a row to standard error as soon as it is measured."""
    print(json.dumps(as_document(row)), file=sys.stderr, flush=True)


def as_document(row: Row) -> dict[str, Any]:
    """Return a row as a JSON object."""
    names = [name for name in Row.__slots__ if name != "gaps_ms"]
    values = {name: getattr(row, name) for name in names}
    rounded = {k: round(v, 3) if isinstance(v, float) else v for k, v in values.items()}
    return {**rounded, "gaps_ms": {name: round(gap, 1) for name, gap in row.gaps_ms.items()}}


def print_targets(rows: list[Row]) -> None:
    """Print the table, and each target as met or MISSED by the largest catalog."""
    print(
        "| catalog | phrases | first routed s | all vectors s | turn p50 | p99 ms | daemon MB "
        "| its peak | model MB | reload none s | one s | caps s | longest gap ms |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        cells = [row.first_routed_s, row.embedded_s, row.turn_p50_ms, row.turn_p99_ms]
        cells += [row.daemon_mb, row.daemon_peak_mb, row.model_mb]
        cells += [row.reload_unchanged_s, row.reload_one_s]
        cells += [row.caps_s, max(row.gaps_ms.values(), default=0.0)]
        shown = " | ".join(f"{each:.2f}" if each < 10 else f"{each:.0f}" for each in cells)
        print(f"| {row.catalog} | {row.phrases:,} | {shown} |")
    sized = [row for row in rows if row.catalog != "starter"]
    if not sized:
        return
    largest = max(sized, key=lambda row: row.phrases)
    for target in TARGETS:
        found = getattr(largest, target.figure)
        verdict = "met" if found <= target.most else "MISSED"
        print(f"{verdict:6}  {target.name}: {found:.3g} (at most {target.most:g})")
    for phase, gap in largest.gaps_ms.items():
        verdict = "met" if gap <= LONGEST_GAP_MS else "MISSED"
        print(f"{verdict:6}  longest gap while {phase}, ms: {gap:.3g} (at most {LONGEST_GAP_MS:g})")


def measured(count: int, *, has_vectors: bool) -> Row:
    """Return the costs of a catalog of `count` capabilities; 0 is the starter tap alone."""
    home = Path(tempfile.mkdtemp(prefix="capd-bench-catalog-"))
    try:
        return Bench(home, count, has_vectors=has_vectors).row()
    finally:
        process_trees.end_everything()
        shutil.rmtree(home, ignore_errors=True)


class Bench:
    """One daemon on one catalog."""

    def __init__(self, home: Path, count: int, *, has_vectors: bool) -> None:
        self._home = home
        self._count = count
        self._env = {**without_capd(), "CAPD_HOME": str(home), "CAPD_BOOTSTRAP": "0"}
        self._socket = str(home / "run/capd.sock")
        self._log = home / "log"
        if count:
            write_tap(home / "tap", count)
            (home / "config").mkdir()
            (home / "config/taps.toml").write_text(
                f'starter = false\nshipped_overlays = false\n[[taps]]\nname = "mine"\n'
                f"path = {json.dumps(str(home / 'tap'))}\n"
            )
            if has_vectors:
                # What `capd tap build` runs after it has asked the daemon to list all tools.
                build = [sys.executable, "-P", "-m", "capd", "tap", "build", str(home / "tap")]
                subprocess.run(build, env=self._env, cwd="/", check=True, stdout=subprocess.DEVNULL)

    def row(self) -> Row:
        """Measure the daemon with one catalog; return the row."""
        own = self._count * PHRASES
        row = Row(f"{self._count:,}" if self._count else "starter", own)
        began_at = time.monotonic()
        daemon = started(
            [sys.executable, "-P", "-m", "capd", "daemon", "run"], self._env, Path("/"), self._log
        )
        self._wait_for_socket(daemon)
        served_at = time.monotonic()
        print(f"# serves after {served_at - began_at:.2f} s", file=sys.stderr, flush=True)
        with Pinger(self._socket, row.gaps_ms) as pinger, Control(self._socket) as control:
            with pinger.phase("embedding"):
                self._wait_until_routed(control)
                row.first_routed_s = time.monotonic() - served_at
                self._wait_for("routing_ready")
                row.embedded_s = time.monotonic() - served_at
            if self._count:
                with pinger.phase("first list of the server"):
                    self._list_server(control)
            with pinger.phase("turns"):
                times = [self._turn(control, at) for at in range(TURNS)]
            row.turn_p50_ms, row.turn_p99_ms = quantile(times, 0.5), quantile(times, 0.99)
            with pinger.phase("reload, nothing changed"):
                row.reload_unchanged_s = self._reloaded(control)
            with pinger.phase("reload, one changed"):
                self._change_one()
                made = self._count_of("routing_ready")
                row.reload_one_s = self._reloaded(control)
                # The daemon makes the lexicon anew after it has answered.
                self._wait_for("routing_ready", made + 1 if self._count else made)
            with pinger.phase("capd caps"):
                row.caps_s = self._run("caps", "--json")
            # A daemon gives memory back once it is quiet.
            time.sleep(QUIET)
            row.daemon_mb = process_trees.memory([daemon.pid]).pss_mb
            row.daemon_peak_mb = process_trees.peak_mb(daemon.pid)
            models = [pid for pid in process_trees.tree([daemon.pid]) if is_model(pid)]
            row.model_mb = process_trees.memory(models).pss_mb
        return row

    def _list_server(self, control: Control) -> None:
        """Have the server list its tools, and wait until the index has them.

        All capabilities share this server, so its first list changes the index entry of each. If
        each had its own server, a list would change one entry. A message that was routed may have
        started the server already.
        """
        name = min(each.name for each in (self._home / "tap/capabilities").iterdir())
        control.call("enable", {"session": "bench", "name": name})
        self._wait_for("tools_indexed")
        made = 0
        # An index that was begun before the list may be made after it.
        while made < (made := self._count_of("index_made")):
            time.sleep(INDEX_AT_REST)

    def _turn(self, control: Control, at: int) -> float:
        began_at = time.perf_counter()
        control.call("turn", {"session": "bench", "text": message(at, self._count)})
        return (time.perf_counter() - began_at) * 1000

    def _reloaded(self, control: Control) -> float:
        began_at = time.perf_counter()
        try:
            control.call("reload")
        except ControlError as error:
            print(f"# reload: {error.message}", file=sys.stderr, flush=True)
        return time.perf_counter() - began_at

    def _change_one(self) -> None:
        folder = self._home / "tap/capabilities"
        if self._count:
            config = next(iter(sorted(folder.iterdir()))) / "config.toml"
            config.write_text(config.read_text() + 'domains = ["changed"]\n')

    def _wait_until_routed(self, control: Control) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while time.monotonic() < give_up_at:
            turn = control.call("turn", {"session": "bench", "text": message(3, self._count)})
            if turn["reason"] != MODEL_NOT_READY:
                return
            time.sleep(0.05)
        raise SystemExit("nothing was ever routed")

    def _count_of(self, event: str) -> int:
        return self._log.read_text(errors="replace").count(f'"event":"{event}"')

    def _wait_for(self, event: str, times: int = 1) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while self._count_of(event) < times:
            if time.monotonic() > give_up_at:
                raise SystemExit(self._log.read_text(errors="replace")[-4000:])
            time.sleep(0.05)

    def _wait_for_socket(self, daemon: Running) -> None:
        give_up_at = time.monotonic() + PATIENCE
        while time.monotonic() < give_up_at:
            with contextlib.suppress(DaemonDownError, ControlError), Control(self._socket) as asked:
                asked.call("sessions")
                return
            if not daemon.is_alive:
                break
            time.sleep(0.02)
        raise SystemExit(self._log.read_text(errors="replace")[-4000:])

    def _run(self, *arguments: str) -> float:
        """Run a command as a person does; return the seconds that it takes."""
        command = [sys.executable, "-P", "-m", "capd_client.entry", *arguments]
        began_at = time.perf_counter()
        subprocess.run(command, env=self._env, cwd="/", check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - began_at


class Pinger:
    """Pings an MCP session without pause, in a thread, and keeps the longest wait of each phase."""

    def __init__(self, path: str, gaps_ms: dict[str, float]) -> None:
        self._gaps_ms = gaps_ms
        self._wire = connected(path)
        self._phase = ""
        self._is_over = False
        self._thread = threading.Thread(target=self._ping, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join(PATIENCE)
        self._wire.close()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record the longest wait of a ping during the block, for the phase `name`."""
        self._gaps_ms[name] = 0.0
        self._phase = name
        yield
        # A ping that is already sent may still wait for the work of this phase.
        time.sleep(0.3)
        self._phase = ""

    def _ping(self) -> None:
        number = 1000
        while not self._is_over:
            phase, number = self._phase, number + 1
            began_at = time.perf_counter()
            ask(self._wire, number, "ping", {})
            waited = (time.perf_counter() - began_at) * 1000
            if phase:
                self._gaps_ms[phase] = max(self._gaps_ms[phase], waited)
            time.sleep(PING_PAUSE)


def connected(path: str) -> Any:
    """Open the session `bench` on the daemon's socket, with its handshake done."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    hello = {"capd": "hello", "protocol": 1, "role": "mcp", "session": "bench", "cwd": "/"}
    client = {"name": "bench", "pid": os.getpid()}
    sock.sendall(json.dumps({**hello, "client": client}).encode() + b"\n")
    wire = LineWire(fd := sock.detach(), fd)
    wire.receive(time.monotonic() + PATIENCE)
    info = {"clientInfo": {"name": "bench", "version": "1"}, "capabilities": {}}
    ask(wire, 1, "initialize", {"protocolVersion": "2025-11-25", **info})
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    wire.send(json.dumps(note).encode(), time.monotonic() + PATIENCE)
    return wire


def ask(wire: Any, number: int, method: str, params: dict[str, Any]) -> None:
    """Send a request, and wait for its answer."""
    request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    deadline = time.monotonic() + PATIENCE
    wire.send(json.dumps(request).encode(), deadline)
    while True:
        for line in wire.receive(deadline):
            if json.loads(line).get("id") == number:
                return
        if time.monotonic() > deadline:
            raise WireError(f"no answer to {method}")


def write_tap(root: Path, count: int) -> None:
    """Write a tap of `count` capabilities into `root`."""
    argv = json.dumps(["-I", str(SERVER), "bench"])
    for at in range(count):
        folder = root / "capabilities" / name_of(at)
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(f"triggers = {json.dumps(phrases_of(at))}\n")
        (folder / "default.toml").write_text(
            f"# Title: {phrases_of(at)[0].capitalize()}\n"
            f"# Description: {phrases_of(at)[1].capitalize()}.\n"
            f'[[mcp.servers]]\nname = "plain"\ncommand = {json.dumps(sys.executable)}\n'
            f"args = {argv}\n"
        )


def name_of(at: int) -> str:
    """Return a unique name of a capability."""
    return f"{NOUNS[at % len(NOUNS)]}-{VERBS[(at // len(NOUNS)) % len(VERBS)]}-{at}"


def phrases_of(at: int) -> list[str]:
    """Return five phrases of different lengths that no other capability has."""
    chosen = random.Random(at)
    verb, noun = VERBS[(at // len(NOUNS)) % len(VERBS)], NOUNS[at % len(NOUNS)]
    place, way = chosen.choice(PLACES), chosen.choice(WAYS).replace("-", " ")
    other, near = chosen.choice(NOUNS), chosen.choice(PLACES)
    return [
        f"{verb} the {noun} of {place} {at}",
        f"could you {verb} our {noun} {way} for the {near} number {at}",
        f"{noun} and {other} at {place} {at}",
        f"I need the {noun} {verb} job {at} done {way}",
        f"{verb} {noun} {at}",
    ]


def message(at: int, count: int) -> str:
    """Return a message as a user writes it, about some capability or none."""
    if not count:
        return ("show me what changed in this repository", "what is the weather like")[at % 2]
    chosen = random.Random(1_000_000 + at)
    phrase = phrases_of(chosen.randrange(count))[chosen.randrange(PHRASES)]
    asked = phrase.split()
    said = (" ".join(asked[:-1]), f"please {phrase} today", f"what does {asked[0]} mean")
    return f"{said[at % 3]}, thanks {at}"


if __name__ == "__main__":
    sys.exit(main())
