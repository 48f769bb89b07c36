"""Measures the tool search: `capd eval search`.

Tools are {server?, name, title?, description, inputSchema?} and queries {text, labels} or {text,
label}, one JSON object a line; a label is a tool's name, or `server/name`. A query's recall@k is
the share of its labels among the best k; nDCG@10 counts each label as 1. Intervals are 95 %, from
resampled queries with a fixed seed, so that equal data give equal figures.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from capd.core.errors import CapdError
from capd.core.tools.tool_search import ToolIndex
from capd.core.tools.tool_text import Tool, described, texts
from capd_protos.types import ToolName, WireName

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

Embed = Callable[[Sequence[str]], "Vectors"]

RECALLS = (1, 5, 10)
DEPTH = 10
SEED = 5
RESAMPLES = 1000
BATCH = 64
PARTS = ("all", "tune", "test")


class BadInputError(CapdError):
    """A file of tools or of queries is invalid; the text has file, line and reason."""


@dataclass(frozen=True, slots=True)
class Query:
    """A text, and the tools that it should find."""

    text: str
    labels: tuple[str, ...]


class Measure(msgspec.Struct, frozen=True):
    """A mean over queries, and its 95 % interval."""

    mean: float
    low: float
    high: float


class Report(msgspec.Struct, frozen=True):
    """The measures of one run of `capd eval search`, and the data that they are from."""

    schema: int
    tools: int
    queries: int
    skipped: int
    """How many queries were left out because a label is not the name of a tool."""
    mode: str
    """`fused` (words and vectors are compared), or `lexical` (words alone)."""
    measures: dict[str, Measure]
    search_ms: dict[str, float]
    """The median (`p50`) and 99th percentile (`p99`) of the milliseconds that a search takes,
    without embedding the query."""
    seed: int = SEED


def read_tools(path: Path) -> list[Tool]:
    """Return the tools of a file.

    Raises:
        BadInputError: the file cannot be read, a line is not a tool, or there is none.
    """
    tools: list[Tool] = []
    for number, row in _rows(path):
        name, server = row.get("name"), row.get("server", "")
        if not isinstance(name, str) or not name or not isinstance(server, str):
            raise BadInputError(f"{path}:{number}: a tool has a `name`, and may have a `server`")
        wire_name = WireName(f"{server}/{name}" if server else name)
        tools.append(described(row, ToolName(name), server, wire_name))
    if not tools:
        raise BadInputError(f"{path}: it has no tool")
    return tools


def read_queries(path: Path, part: str = "all", split: str = "") -> list[Query]:
    """Return the queries in the file at `path` that are in `part` and in `split`.

    An empty `split` means any, and so does the part `all`. The parts `tune` and `test` are the
    halves of the development data. The last hex digit of the text's sha256 is even in `tune`, and
    odd in `test`.

    Raises:
        BadInputError: the file cannot be read, a line is not a query, or no query is selected.
    """
    queries: list[Query] = []
    for number, row in _rows(path):
        text = row.get("text")
        labels = row.get("labels", [row["label"]] if "label" in row else None)
        has_labels = isinstance(labels, list) and all(isinstance(label, str) for label in labels)
        if not isinstance(text, str) or not has_labels or not labels:
            raise BadInputError(f"{path}:{number}: a query has `text`, and `labels` or a `label`")
        if split and row.get("split") != split:
            continue
        if part in {"all", part_of(text)}:
            queries.append(Query(text, tuple(dict.fromkeys(labels))))
    if not queries:
        raise BadInputError(f"{path}: no query is left of split {split!r}, part {part!r}")
    return queries


def part_of(text: str) -> str:
    """Return the half of the development data that a text belongs to: `tune` or `test`.

    It depends on the last hex digit of the text's sha256.
    """
    last = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[-1]
    return "test" if int(last, 16) % 2 else "tune"


def evaluate(
    tools: Sequence[Tool],
    queries: Sequence[Query],
    embed: Embed | None,
    *,
    skip_unknown_labels: bool = False,
) -> Report:
    """Search `tools` for each query, and return the measures.

    `embed` turns texts into vectors; without it, the search compares words alone.

    Raises:
        BadInputError: a label names no tool and `skip_unknown_labels` is false, or no query is
            left.
    """
    index = ToolIndex(tools)
    by_label: dict[str, WireName] = {tool.name: tool.wire_name for tool in reversed(index.tools)}
    by_label.update({tool.wire_name: tool.wire_name for tool in index.tools})
    asked: list[Query] = []
    for query in queries:
        unknown = [label for label in query.labels if label not in by_label]
        if not unknown:
            asked.append(query)
        elif not skip_unknown_labels:
            raise BadInputError(
                f"label {unknown[0]!r} of query {query.text[:60]!r} is no tool's name; "
                "--skip-unknown-labels counts and skips such queries"
            )
    if not asked:
        raise BadInputError("no query has a label that is a tool's name")
    if embed is not None:
        index.take_vectors(_embedded(texts(index.tools), embed))
    figures: list[tuple[float, ...]] = []
    seconds: list[float] = []
    vectors = None if embed is None else _embedded([query.text for query in asked], embed)
    for number, query in enumerate(asked):
        vector = None if vectors is None else vectors[number]
        started_at = time.perf_counter()
        found = index.ranked(query.text, DEPTH, vector)
        seconds.append(time.perf_counter() - started_at)
        relevant = {by_label[label] for label in query.labels}
        figures.append(_figures([hit.tool.wire_name for hit in found.hits], relevant))
    return Report(
        schema=1,
        tools=len(index.tools),
        queries=len(asked),
        skipped=len(queries) - len(asked),
        mode="lexical" if embed is None else "fused",
        measures=_measures(figures),
        search_ms=_percentiles(seconds),
    )


def table(report: Report) -> str:
    """Return the measures in `report` as text for a person."""
    lines = [
        f"{report.tools} tools, {report.queries} queries ({report.skipped} skipped), {report.mode}",
        f"{'':12}{'mean':>8}   95 % interval",
    ]
    lines.extend(
        f"{name:12}{measure.mean:8.3f}   {measure.low:.3f} - {measure.high:.3f}"
        for name, measure in report.measures.items()
    )
    times = report.search_ms
    lines.append(f"{'search':12}  p50 {times['p50']:.2f} ms, p99 {times['p99']:.2f} ms")
    return "\n".join(lines)


def _figures(ranked: Sequence[WireName], relevant: set[WireName]) -> tuple[float, ...]:
    """Return the recall at each of `RECALLS`, and then nDCG@10, of one query.

    `ranked` are the tools that the search found, best first, and `relevant` those it should find.
    """
    from math import log2  # noqa: PLC0415 - beside the only formula that needs it

    places = [place for place, name in enumerate(ranked) if name in relevant]
    recalls = [sum(place < k for place in places) / len(relevant) for k in RECALLS]
    gain = sum(1 / log2(place + 2) for place in places)
    ideal = sum(1 / log2(place + 2) for place in range(min(len(relevant), DEPTH)))
    return (*recalls, gain / ideal)


def _measures(figures: Sequence[tuple[float, ...]]) -> dict[str, Measure]:
    import numpy as np  # noqa: PLC0415 - 60 ms that other commands never pay

    table_ = np.array(figures)
    draws = np.random.default_rng(SEED).integers(0, len(table_), (RESAMPLES, len(table_)))
    means = np.stack([table_[:, column][draws].mean(axis=1) for column in range(table_.shape[1])])
    low, high = np.percentile(means, [2.5, 97.5], axis=1)
    names = [*(f"recall@{k}" for k in RECALLS), f"ndcg@{DEPTH}"]
    return {
        name: Measure(
            *(round(float(x), 4) for x in (table_[:, column].mean(), low[column], high[column]))
        )
        for column, name in enumerate(names)
    }


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return {f"p{p}": round(ordered[round(last * p / 100)] * 1000, 3) for p in (50, 99)}


def _embedded(wanted: Sequence[str], embed: Embed) -> "Vectors":
    import numpy as np  # noqa: PLC0415 - as above

    batches = [embed(wanted[at : at + BATCH]) for at in range(0, len(wanted), BATCH)]
    return np.concatenate(batches)


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInputError(f"{path}: it cannot be read: {error.strerror}") from None
    rows: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append((number, msgspec.json.decode(line, type=dict[str, Any])))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadInputError(f"{path}:{number}: not a JSON object: {error}") from None
    return rows
