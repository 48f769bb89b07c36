"""Routing is no worse than what was measured when the profile was made: `routing_baseline.json`.

A measure may fall (or rise, where it counts mistakes) by `TOLERANCE` and no more. The starter
rows are the project's own; the other sets are read where they are at hand. Part of `make test`,
so only sets that take seconds; `bench/routing.sh` has the others.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets, route
from capd.evaluation.datasets import Selection
from capd.evaluation.vectors import Vectorizer, vectorizer_for

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BASELINE: dict[str, dict[str, Any]] = json.loads((HERE / "routing_baseline.json").read_text())
TOLERANCE = 0.02
BETTER_LOW = ("wrong", "false_activation", "false_suggestion")


@pytest.fixture(scope="module")
def vectorizer(vectors: Path) -> Vectorizer:
    return vectorizer_for(read_profile(), vectors)


def measured(entry: dict[str, Any], data: Path, vectorizer: Vectorizer) -> dict[str, float]:
    if "tap" in entry:
        overlays = [ROOT / each for each in entry.get("overlays", [])]
        tap = ROOT / entry["tap"] if entry.get("own") else data / entry["tap"]
        capabilities = datasets.tap(tap, overlays=overlays)
    else:
        capabilities = datasets.catalogue(data / entry["catalogue"], (), entry["set"])
    rows = Selection(set=entry.get("rows", "")).rows([data / entry["data"]])
    router = route.Router(capabilities, read_profile(), vectorizer)
    judged = [route.Judged(row, router.decided(row)) for row in rows]
    found = route.report(judged, "evidence", len(capabilities), 0, None)
    return {name: measure.mean for name, measure in found.measures.items()}


def worse(got: dict[str, float], before: dict[str, float]) -> dict[str, tuple[float, float]]:
    return {
        name: (value, got[name])
        for name, value in before.items()
        if (got[name] - value if name in BETTER_LOW else value - got[name]) > TOLERANCE
    }


def test_the_projects_own_rows_are_routed_as_well_as_before(vectorizer: Vectorizer) -> None:
    entry = BASELINE["starter"]

    got = measured(entry, HERE, vectorizer)

    assert worse(got, entry["measures"]) == {}


@pytest.mark.parametrize("name", [name for name in BASELINE if name != "starter"])
def test_shared_rows_are_routed_as_well_as_before(
    name: str, shared_fixtures: Path, vectorizer: Vectorizer
) -> None:
    data = shared_fixtures / "data"
    if not data.is_dir():
        pytest.skip(f"no data at {data}")
    entry = BASELINE[name]

    got = measured(entry, data, vectorizer)

    assert worse(got, entry["measures"]) == {}


@pytest.mark.parametrize(
    ("got", "drop"),
    [
        ({"correct": 0.8, "wrong": 0.1}, {}),
        ({"correct": 0.785, "wrong": 0.115}, {}),
        ({"correct": 0.775, "wrong": 0.1}, {"correct": (0.8, 0.775)}),
        ({"correct": 0.9, "wrong": 0.125}, {"wrong": (0.1, 0.125)}),
    ],
)
def test_a_drop_beyond_the_tolerance_is_told(
    got: dict[str, float], drop: dict[str, tuple[float, float]]
) -> None:
    assert worse(got, {"correct": 0.8, "wrong": 0.1}) == drop
