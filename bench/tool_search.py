"""Measure the tool search at 10,000 tools: `.venv/bin/python bench/tool_search.py`.

The tools are made up, with as many words as real ones have. Vectors are random unit rows, as their
content does not matter to the time. All runs on one thread. A scan of a plain Python list for the
same words is measured too: the ratio of the two holds on any machine. Prints a table to stderr,
then one JSON line.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - the threads are set before it is loaded

from capd.adapters import platform  # noqa: E402
from capd.core.lexical import words  # noqa: E402
from capd.core.tools.tool_search import ToolIndex  # noqa: E402
from capd.core.tools.tool_text import Tool  # noqa: E402
from capd_protos.types import ToolName, WireName  # noqa: E402

VERBS = ("get", "list", "create", "update", "delete", "search", "send", "open", "close", "merge")
THINGS = ("issue", "file", "mail", "page", "branch", "order", "ticket", "user", "event", "chart")
NOUNS = [
    f"{first}{second}"
    for first in THINGS
    for second in ("", "group", "comment", "label", "history", "draft", "link", "owner", "rule")
]
FILLER = [f"word{number}" for number in range(4000)]
QUESTION = "find open issue comments of the last week and send them by mail to the owner"


def made(number: int, chance: random.Random) -> Tool:
    name = f"{chance.choice(VERBS)}_{chance.choice(NOUNS)}_{chance.choice(NOUNS)}"
    # Zipf's law, roughly: a few words are everywhere.
    filler = [FILLER[int(len(FILLER) * chance.random() ** 3)] for _ in range(40)]
    description = " ".join([*name.split("_"), *filler])
    server = f"server{number % 100}"
    wire = WireName(f"{server}__{name}_{number}")
    arguments = tuple(chance.sample(NOUNS, 4))
    return Tool(wire, ToolName(f"{name}_{number}"), server, "", description, arguments)


def rss_mb() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def timed(act: Callable[[], object], rounds: int) -> dict[str, float]:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        act()
        taken.append((time.perf_counter() - started) * 1000)
    taken.sort()
    return {"p50_ms": round(taken[rounds // 2], 3), "p99_ms": round(taken[rounds * 99 // 100], 3)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tools", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=300)
    chosen = options.parse_args()
    chance = random.Random(5)
    tools = [made(number, chance) for number in range(chosen.tools)]
    before = rss_mb()

    started = time.perf_counter()
    index = ToolIndex(tools)
    built = time.perf_counter() - started
    peak = rss_mb()
    platform.trim_memory()
    after_words = rss_mb()
    rows = np.random.default_rng(5).normal(size=(len(index.tools), 384)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index.take_vectors(rows)
    after_vectors = rss_mb()

    asked = set(words(QUESTION))
    texts = [set(words(tool.words)) for tool in tools]
    fused = timed(lambda: index.ranked(QUESTION, 25, rows[0]), chosen.rounds)
    scan = timed(lambda: sorted(range(len(texts)), key=lambda n: -len(asked & texts[n])), 20)
    found = {
        "tools": len(index.tools),
        "lexical_ready_s": round(built, 2),
        "build_peak_mb": round(peak - before, 1),
        "words_mb": round(after_words - before, 1),
        "vectors_mb": round(after_vectors - after_words, 1),
        "fused": fused,
        "lexical": timed(lambda: index.ranked(QUESTION, 25), chosen.rounds),
        "exact": timed(lambda: index.ranked(tools[7].wire_name, 25, rows[0]), chosen.rounds),
        "miss": timed(lambda: index.ranked("zzzzqqq", 25), chosen.rounds),
        "select": timed(lambda: index.selected([tools[7].name, "nobody"], 24), chosen.rounds),
        "scan": scan,
        "scan_over_fused": round(scan["p50_ms"] / fused["p50_ms"], 1),
    }
    for name, value in found.items():
        print(f"{name:18}{value}", file=sys.stderr)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
