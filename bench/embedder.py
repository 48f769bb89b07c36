"""Measure the embedder's memory and latency: `.venv/bin/python bench/embedder.py`.

Prints a table to stderr, then one JSON line (MB are 10^6 bytes). The options show what each
measure is worth:
`--no-trim` leaves out malloc_trim after loading, `--fixed-mmap` keeps glibc from raising
its mmap threshold, so that a batch's memory goes back at once.
"""

import argparse
import ctypes
import json
import os
import resource
import sys
import time
from pathlib import Path

MESSAGE = "please find the open issues about flaky tests in our repository"
M_MMAP_THRESHOLD = -3


def rss_mb() -> float:
    """Read the resident memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure in a fresh process and print."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-trim", action="store_true")
    options.add_argument("--fixed-mmap", action="store_true")
    options.add_argument("--messages", type=int, default=500)
    chosen = options.parse_args()

    libc = ctypes.CDLL(None)
    if chosen.fixed_mmap:
        libc.mallopt(M_MMAP_THRESHOLD, 128 * 1024)
    found: dict[str, float] = {"start_rss_mb": rss_mb()}
    started = time.perf_counter()
    from capd.adapters.model.minilm import MiniLM  # noqa: PLC0415 -- imports are what is measured

    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime  # noqa: F401, PLC0415
    import tokenizers  # noqa: F401, PLC0415

    found["import_ms"] = (time.perf_counter() - started) * 1000
    found["import_rss_mb"] = rss_mb()

    started = time.perf_counter()
    model = MiniLM(after_load=None if chosen.no_trim else lambda: libc.malloc_trim(0))
    found["load_ms"] = (time.perf_counter() - started) * 1000
    found["load_rss_mb"] = rss_mb()

    taken = []
    for number in range(chosen.messages):
        started = time.perf_counter()
        model.embed([f"{MESSAGE} {number}"])
        taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    found["messages_rss_mb"] = rss_mb()
    found["message_p50_ms"] = taken[len(taken) // 2]
    found["message_p99_ms"] = taken[len(taken) * 99 // 100]

    texts = [f"{MESSAGE} {number} " * (1 + number % 5) for number in range(64)]
    started = time.perf_counter()
    model.embed(texts)
    found["batch_64_ms"] = (time.perf_counter() - started) * 1000
    found["batch_64_rss_mb"] = rss_mb()
    started = time.perf_counter()
    model.embed(["word " * 300])
    found["longest_ms"] = (time.perf_counter() - started) * 1000
    model.embed([f"{number} " + "word " * 300 for number in range(64)])
    found["batch_64x256_rss_mb"] = rss_mb()
    libc.malloc_trim(0)
    found["trimmed_rss_mb"] = rss_mb()
    found["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6

    for name, value in found.items():
        print(f"{name:22} {value:8.1f}", file=sys.stderr)
    print(json.dumps({name: round(value, 1) for name, value in found.items()}))


if __name__ == "__main__":
    main()
