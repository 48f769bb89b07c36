"""`capd eval` on the project's own rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def capd_eval(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "capd_client.entry", "eval", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, env=os.environ, check=False
    )


def test_a_routing_report_has_every_measure_with_its_interval_and_the_latency(
    vectors: Path,
) -> None:
    ran = capd_eval(
        *("route", "--tap", ROOT / "taps/starter", "--overlays", ROOT / "taps/overlays/starter"),
        *("--data", HERE / "starter_rows.jsonl", "--vectors", vectors, "--json"),
    )

    got = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert set(got["measures"]) == {
        *("correct", "wrong", "abstention", "found", "recall@1", "recall@3", "recall@5"),
        *("false_activation", "false_suggestion"),
    }
    assert all(set(each) == {"mean", "low", "high"} for each in got["measures"].values())
    assert {"d", "i"} <= set(got["kinds"])
    assert set(got["latency"]) == {"p50", "p99", "messages"}


def test_a_search_report_has_every_measure_with_its_interval_and_the_latency() -> None:
    ran = capd_eval(
        *("search", "--tools", HERE / "search_tools.jsonl"),
        *("--queries", HERE / "search_queries.jsonl", "--lexical", "--json"),
    )

    got = json.loads(ran.stdout)
    assert ran.returncode == 0
    assert set(got["measures"]) == {"recall@1", "recall@5", "recall@10", "ndcg@10"}
    assert set(got["search_ms"]) == {"p50", "p99"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "the following arguments are required: what"),
        (("route", "--data", "x"), "say either --tap, or --catalogue"),
        (("route", "--tap", ROOT / "taps/starter", "--data", "/nowhere"), "/nowhere: No such file"),
        (("search", "--tools", "/nowhere", "--queries", "x"), "/nowhere"),
    ],
)
def test_a_wrong_command_says_what_is_missing(arguments: tuple[object, ...], said: str) -> None:
    ran = capd_eval(*arguments)

    assert ran.returncode != 0
    assert said in ran.stderr
    assert "Traceback" not in ran.stderr
