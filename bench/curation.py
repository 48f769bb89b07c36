"""Compare the scorers of per-turn curation: `.venv/bin/python bench/curation.py DATA`.

Curation chooses the single tools that join the list of a turn. DATA is a folder with the tools and
queries of MetaTool and BFCL, and messages that need none of their tools (docs/design/tool-search.md
names them). For each scorer, the benchmark prints how often the right tool is among the best k, in
how many turns a tool joins and in how many a right one, how many of the tools that join are right,
and in how many turns a tool joins although none should. `--part test` uses only the half of the
data that nothing was tuned on. `--cache FILE` keeps vectors.
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from capd.core.routing.gates import before_model  # noqa: E402 - after the threads
from capd.core.routing.passages import Passages  # noqa: E402 - as above
from capd.core.tools.curation import (  # noqa: E402
    BestTool,
    CurationRules,
    Field,
    curated,
    curated_by_keywords,
)
from capd.core.tools.tool_search import ToolIndex  # noqa: E402
from capd.core.tools.tool_text import texts  # noqa: E402
from capd.evaluation.search import Query, part_of, read_queries, read_tools  # noqa: E402
from capd.evaluation.vectors import Vectorizer  # noqa: E402

SETS = (
    ("MetaTool", "metatool_tools.jsonl", "metatool_queries.dev.jsonl", "tune"),
    ("BFCL", "bfcl_tools.jsonl", "bfcl_queries.tune.jsonl", ""),
)
NEGATIVES = (
    ("questions", "metatool_negatives.tune.jsonl"),
    ("work", "blind_routing.tune.jsonl"),
    ("out of scope", "clinc150.dev.jsonl"),
)
RECALLS = (1, 3, 15)
RULES = CurationRules()
Scorer = Callable[[str], list[BestTool]]


def asked(text: str) -> str:
    compared = before_model(text, is_enabled=True)
    return compared.ends if isinstance(compared, Passages) else ""


def joining(best: Sequence[BestTool]) -> list[BestTool]:
    return [each for each in best if each.is_clear][: RULES.new_per_turn]


def messages(file: Path, part: str) -> list[str]:
    """Return messages that need none of the tools; of CLINC, those out of its scope."""
    rows = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
    is_all = "blind" in file.name
    return [
        row["text"]
        for row in rows
        if (is_all or row["label"] is None) and part in {"all", part_of(row["text"])}
    ]


def scorers(index: ToolIndex, vectorizer: Vectorizer) -> dict[str, Scorer]:
    def hybrid(text: str) -> list[BestTool]:
        return curated(index, text, RULES.k, Field(), vectorizer.of([text])[text])

    def words(text: str) -> list[BestTool]:
        return curated(index, text, RULES.k, Field())

    def keyword(text: str) -> list[BestTool]:
        return curated_by_keywords(index.tools, text, RULES.k, Field())

    return {"hybrid": hybrid, "hybrid, no model": words, "keyword": keyword}


def found(scorer: Scorer, queries: Sequence[Query]) -> str:
    """Return a line with the figures of a scorer on messages that want a tool."""
    recalls, turns, right, joined, precise = [0.0] * len(RECALLS), 0, 0, 0, 0
    for query in queries:
        best = scorer(asked(query.text))
        names = [str(each.tool.name) for each in best]
        for at, k in enumerate(RECALLS):
            recalls[at] += len(set(names[:k]) & set(query.labels)) / len(query.labels)
        new = [str(each.tool.name) for each in joining(best)]
        hits = sum(name in query.labels for name in new)
        turns, right = turns + bool(new), right + bool(hits)
        joined, precise = joined + len(new), precise + hits
    total = len(queries)
    shares = " / ".join(f"{recall / total:.3f}" for recall in recalls)
    return (
        f"recall@{'/'.join(map(str, RECALLS))} {shares}   joins in {turns / total:.3f}, right in "
        f"{right / total:.3f}, of those that join right {precise / max(1, joined):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", choices=("all", "tune", "test"), default="all")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    vectorizer = Vectorizer(given.cache)
    nothing = {name: messages(given.data / file, given.part) for name, file in NEGATIVES}
    for name, tools_file, queries_file, split in SETS:
        index = ToolIndex(read_tools(given.data / tools_file))
        index.take_vectors(vectorizer.stacked(texts(index.tools)))
        known = {str(tool.name) for tool in index.tools}
        queries = [
            query
            for query in read_queries(given.data / queries_file, given.part, split)
            if known.issuperset(query.labels)
        ]
        every = [query.text for query in queries] + [t for each in nothing.values() for t in each]
        vectorizer.of([asked(text) for text in every])
        print(f"{name}: {len(index.tools)} tools, {len(queries)} queries, {given.part}")
        for label, scorer in scorers(index, vectorizer).items():
            print(f"  {label:17} {found(scorer, queries)}")
            shares = {
                kind: sum(bool(joining(scorer(asked(text)))) for text in told) / len(told)
                for kind, told in nothing.items()
            }
            noise = ", ".join(f"{kind} {share:.3f}" for kind, share in shares.items())
            print(f"  {'':17} joins where nothing should: {noise}")


if __name__ == "__main__":
    main()
