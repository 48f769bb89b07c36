"""The search of very many vectors: `python bench/vector_graph.py DATA [--counts N,...] [--write]`.

Compares usearch's graph (adapters/model/vector_graph) with the comparison of every vector, at
10,000, 100,000 and 1,000,000 tools of 384 dimensions.

DATA is the folder of the routing sets. No set has so many tools, so their vectors are made: each is
the vector of a real text (a tool, a trigger or a message of the sets), mixed with that of another
one, plus noise. The questions are real and unchanged: the vectors of 300 messages that ask for
tools, none of which is among the texts.

Each of the two runs in a process of its own. Times are CPU times of one thread, so other load on
the machine lengthens them little. Memory is the growth of the process from before the vectors were
loaded to after the last question: `own` cannot be given back; `mapped` are pages of the file,
which the system may drop at any time.

Figures are added to bench/results/vector_graph.json; `--write` puts the table into
docs/design/tool-search.md.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402 - the threads are set before it is loaded
import numpy.typing as npt  # noqa: E402

from capd.adapters.model.vector_graph import vector_graph  # noqa: E402
from capd.core.tools.vector_search import ExactSearch, VectorSearch  # noqa: E402

Vectors = npt.NDArray[np.float32]

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "bench/results/vector_graph.json"
PAGE = ROOT / "docs/design/tool-search.md"
BEGIN, END = "<!-- bench/vector_graph.py --write -->", "<!-- end -->"
DIMENSIONS = 384
OTHER = 0.5
"""The weight of the second text's vector; the first has 1."""
NOISE = 0.5
"""The length of the noise; the vector of a text has length 1."""
QUESTIONS = 300
BEST = 10
PART = 20_000


def real_vectors(data: Path, cache: Path | None) -> tuple[Vectors, Vectors]:
    """Return the vectors of the sets' texts, and of the questions."""
    from capd.core.tools.tool_text import texts  # noqa: PLC0415 - in this process alone
    from capd.evaluation.search import read_tools  # noqa: PLC0415
    from capd.evaluation.vectors import Vectorizer  # noqa: PLC0415

    known: list[str] = []
    for name in ("metatool_tools.jsonl", "bfcl_tools.jsonl"):
        known += texts(read_tools(data / name))
    for each in lines(data / "octomind_catalogue.jsonl"):
        known += [*each["triggers"], *each["descriptions"]]
    known += [each["text"] for each in lines(data / "clinc150.dev.jsonl")[::8]]
    asked = [each["text"] for each in lines(data / "bfcl_queries.tune.jsonl")]
    asked += [each["text"] for each in lines(data / "metatool_queries.dev.jsonl")[::40]]
    questions = [text for text in dict.fromkeys(asked) if text not in set(known)][-QUESTIONS:]
    vectorizer = Vectorizer(cache)
    return vectorizer.stacked(list(dict.fromkeys(known))), vectorizer.stacked(questions)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def make_rows(real: Vectors, count: int, path: Path) -> None:
    """Write `count` made vectors into `path`."""
    chance = np.random.default_rng(5)
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (count, DIMENSIONS))
    for at in range(0, count, PART):
        size = min(PART, count - at)
        first, second = (real[chance.integers(0, len(real), size)] for _ in range(2))
        noise = chance.normal(size=(size, DIMENSIONS)).astype(np.float32) / DIMENSIONS**0.5
        made = first + np.float32(OTHER) * second + np.float32(NOISE) * noise
        rows[at : at + size] = made / np.linalg.norm(made, axis=1, keepdims=True)
    rows.flush()


def memory_mb() -> tuple[float, float]:
    """Return two parts of this process's resident memory: its own, and pages mapped from files."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines()
    )
    own, mapped = (int(status[key].split()[0]) / 1000 for key in ("RssAnon", "RssFile"))
    return own, mapped


def asked(search: VectorSearch, questions: Vectors) -> tuple[list[list[int]], dict[str, float]]:
    """Return the best rows for each question, and the median and p99 of the times."""
    best, taken = [], []
    for question in questions:
        started = time.thread_time()
        cosines = search.cosines(question, ())
        rows = np.argpartition(-cosines, BEST)[:BEST]
        taken.append((time.thread_time() - started) * 1000)
        best.append(rows.tolist())
    taken.sort()
    middle, last = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
    return best, {"p50_ms": round(middle, 2), "p99_ms": round(last, 2)}


def exact(rows: Path, questions: Vectors) -> dict[str, Any]:
    """Measure the comparison of a question with every vector."""
    before = memory_mb()
    search = ExactSearch(np.load(rows))
    best, times = asked(search, questions)
    return {"best": best, **times, **grown(before)}


def build(rows: Path, graph: Path, threads: int) -> dict[str, Any]:
    """Build the graph."""
    loaded = np.load(rows, mmap_mode="r")
    started, started_at = time.process_time(), time.perf_counter()
    vector_graph(graph, "bench", names(len(loaded)), lambda: loaded, threads=threads)
    return {
        "build_s": round(time.process_time() - started, 1),
        "build_wall_s": round(time.perf_counter() - started_at, 1),
        "file_mb": round(graph.stat().st_size / 1e6, 1),
    }


def find(count: int, graph: Path, questions: Vectors) -> dict[str, Any]:
    """Measure the search with the graph."""
    import usearch.index  # noqa: F401, PLC0415 - before memory is measured

    texts = names(count)
    before = memory_mb()
    started = time.process_time()
    search = vector_graph(graph, "bench", texts, lambda: sys.exit("it was built again"))
    opened = time.process_time() - started
    best, times = asked(search, questions)
    return {"best": best, "open_s": round(opened, 2), **times, **grown(before)}


def names(count: int) -> list[str]:
    """Return one text for each row."""
    return [str(at) for at in range(count)]


def grown(before: tuple[float, float]) -> dict[str, float]:
    """Return by how much the memory has grown, in MB."""
    own, mapped = memory_mb()
    return {"own_mb": round(own - before[0], 1), "mapped_mb": round(mapped - before[1], 1)}


def apart(act: Callable[..., dict[str, Any]], *given: object) -> dict[str, Any]:
    """Return the result of `act`, run in another process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(act, *given).result()


def measured(count: int, real: Vectors, questions: Vectors, threads: int) -> dict[str, Any]:
    """Return the figures of one count."""
    with tempfile.TemporaryDirectory(prefix="capd") as folder:
        rows, graph = Path(folder, "rows.npy"), Path(folder, "tools.graph")
        make_rows(real, count, rows)
        right = apart(exact, rows, questions)
        built = apart(build, rows, graph, threads)
        found = apart(find, count, graph, questions)
    pairs = zip(right.pop("best"), found.pop("best"), strict=True)
    same = sum(len(set(one) & set(other)) for one, other in pairs)
    recall = round(same / (BEST * len(questions)), 4)
    return {"tools": count, "exact": right, "graph": {**built, **found, "recall_at_10": recall}}


def table(results: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    head = (
        "| tools | | build, CPU | file | open | question p50 / p99, CPU | recall@10 "
        "| memory: own, mapped |\n|---|---|---|---|---|---|---|---|\n"
    )
    shown = []
    for each in sorted(results, key=lambda row: int(row["tools"])):
        one, other = each["exact"], each["graph"]
        shown.append(
            f"| {each['tools']:,} | every vector | | | | {one['p50_ms']} / {one['p99_ms']} ms "
            f"| 1 | {one['own_mb']:.0f}, {one['mapped_mb']:.0f} MB |\n"
            f"| | the graph | {other['build_s']:.0f} s | {other['file_mb']:.0f} MB "
            f"| {other['open_s']} s | {other['p50_ms']} / {other['p99_ms']} ms "
            f"| {other['recall_at_10']:.3f} "
            f"| {other['own_mb']:.0f}, {other['mapped_mb']:.0f} MB |\n"
        )
    return head + "".join(shown)


def main() -> None:
    """Measure, and write the results."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("data", type=Path)
    options.add_argument("--counts", default="10000,100000,1000000")
    options.add_argument("--threads", type=int, default=1, help="for building; capd itself uses 1")
    options.add_argument("--cache", type=Path, help="a file for the real vectors")
    options.add_argument("--write", action="store_true", help="put the table into its page")
    chosen = options.parse_args()
    counts = [int(each) for each in chosen.counts.split(",") if each]
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    real, questions = real_vectors(chosen.data, chosen.cache)
    print(f"{len(real)} real texts, {len(questions)} questions", file=sys.stderr)
    for count in counts:
        row = measured(count, real, questions, chosen.threads)
        print(json.dumps(row), file=sys.stderr)
        if RESULTS.exists():
            results = json.loads(RESULTS.read_text("utf-8"))
        results = [each for each in results if each["tools"] != count] + [row]
        results.sort(key=lambda each: int(each["tools"]))
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if chosen.write:
        page = PAGE.read_text(encoding="utf-8")
        before, rest = page.split(BEGIN)
        after = rest.split(END, 1)[1]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n{END}{after}", encoding="utf-8")
    print(table(results))


if __name__ == "__main__":
    main()
