"""What a long result costs, cut and uncut: `python bench/results.py [SIZE_KB...]`.

Runs two daemons for each size: one that cuts long results, and one that does not. Measures how
long a call takes at the client (median and slowest of five), how many bytes it receives, by how
much the daemon's memory grows at most, and the longest call of another session to another server
meanwhile. The first of the five calls stores the result; the others find it stored. Prints a
table, and the same as one line of JSON.
"""

import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

# This replaces the folder of this file, which would hide a package of the same name.
sys.path[0] = str(Path(__file__).parents[1] / "tests")

from whole.test_large_results import RawEditor  # noqa: E402 - its path
from whole_daemon import Home  # noqa: E402 - its path

SERVER = Path(__file__).parents[1] / "tests/whole/results_server.py"
SIZES_KB = (100, 1_000, 16_000, 100_000)
REPETITIONS = 5
MIB = 1 << 20


@dataclass(frozen=True)
class Measured:
    """The figures of one kind and size of result, cut or whole (`way`)."""

    kind: str
    size_kb: int
    way: str
    first_ms: float
    median_ms: float
    slowest_ms: float
    received_bytes: int
    grown_mib: float
    neighbour_ms: float


def log_text(size: int) -> str:
    line = "{:09} INFO src/handlers/users.py:42 request to https://api.example/v1/users done\n"
    return "".join(line.format(n) for n in range(size // 88))


def issues_text(size: int) -> str:
    item = {"title": "It fails", "url": "https://api.example/issues/1", "body": "words " * 80}
    return json.dumps([{"id": n, **item} for n in range(size // 580)])


KINDS = {"log": log_text, "JSON": issues_text}


def rss_bytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def neighbour(home: Home) -> Iterator[list[float]]:
    """Call another server from another session all the time; yield the list of times in ms."""
    editor = home.shim("neighbour")
    home.ask("enable", session="neighbour", name="talk")
    took: list[float] = []
    is_over = threading.Event()

    def talk() -> None:
        while not is_over.wait(0.002):
            began_at = time.perf_counter()
            editor.call("talk__echo", {"text": "x"}, timeout=60.0)
            took.append((time.perf_counter() - began_at) * 1000)

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        yield took
    finally:
        is_over.set()
        talker.join()
        editor.leave()


def measure(kind: str, size_kb: int, way: str) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    home = Home(folder)
    try:
        results = folder / "results"
        results.mkdir()
        text = json.dumps(KINDS[kind](size_kb * 1000))
        whole = '{"content":[{"type":"text","text":' + text + "}]}"
        results.joinpath("give.json").write_text(whole)
        home.capability("shop", [sys.executable, "-I", str(SERVER), str(results), home.tag])
        home.plain("talk")
        home.env["CAPD_RESULT_LIMIT"] = "32000" if way == "cut" else "0"
        daemon = home.start()
        editor = RawEditor(home, "one")
        home.ask("enable", session="one", name="shop")
        took: list[float] = []
        received = 0
        with neighbour(home) as waits:
            while len(waits) < 20:
                time.sleep(0.01)
            waits.clear()
            before = rss_bytes(daemon.pid, "VmRSS")
            # Resets the peak (VmHWM).
            Path(f"/proc/{daemon.pid}/clear_refs").write_text("5")
            for _ in range(REPETITIONS):
                began_at = time.perf_counter()
                parts = editor.answer("tools/call", {"name": "shop__give", "arguments": {}})
                received = sum(len(part) for part in parts)
                took.append((time.perf_counter() - began_at) * 1000)
            grown = rss_bytes(daemon.pid, "VmHWM") - before
        editor.leave()
        return Measured(
            kind,
            size_kb,
            way,
            round(took[0], 1),
            round(statistics.median(took), 1),
            round(max(took), 1),
            received,
            round(grown / MIB, 1),
            round(max(waits, default=0.0), 1),
        )
    finally:
        home.close()
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    sizes = [int(each) for each in sys.argv[1:]] or SIZES_KB
    head = f"{'kind':6}{'KB':>8} {'way':6}{'first ms':>10}{'median':>9}{'slowest':>9}"
    print(f"{head}{'received B':>13}{'grown MiB':>11}{'neighbour ms':>14}")
    rows: list[Measured] = []
    for kind in KINDS:
        for size_kb in sizes:
            for way in ("whole", "cut"):
                row = measure(kind, size_kb, way)
                rows.append(row)
                times = f"{row.first_ms:>10}{row.median_ms:>9}{row.slowest_ms:>9}"
                print(
                    f"{row.kind:6}{row.size_kb:>8} {row.way:6}{times}{row.received_bytes:>13}"
                    f"{row.grown_mib:>11}{row.neighbour_ms:>14}",
                    flush=True,
                )
    print(json.dumps([asdict(row) for row in rows]))


if __name__ == "__main__":
    main()
