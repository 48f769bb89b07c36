"""The charts and the pages show the figures of bench/results."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from documents import pages

RESULTS = pages.ROOT / "bench/results"
PICTURES = pages.DOCS / "pictures"
CODE = runpy.run_path(str(pages.DOCS / "charts.py"))
NAMES = ["latency", "throughput", "memory", "tokens"]


def result(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))


def drawn_by_name() -> dict[str, Any]:
    charts = CODE["charts"](result("relay"), result("tokens"))
    return {chart.name: chart for chart in charts}


def test_there_is_a_chart_for_latency_throughput_memory_and_tokens() -> None:
    assert list(drawn_by_name()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_has_every_bar_of_its_figures_and_their_source(name: str) -> None:
    chart = drawn_by_name()[name]
    picture = (PICTURES / f"chart-{name}.svg").read_text(encoding="utf-8")
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", picture)

    missing = [
        text
        for bar, value in chart.bars
        for text in (bar, CODE["written"](value))
        if text not in texts
    ]

    assert missing == [], "run make charts"
    assert chart.source in texts


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_light_or_dark_and_fetches_nothing(name: str) -> None:
    picture = (PICTURES / f"chart-{name}.svg").read_text(encoding="utf-8")

    assert "prefers-color-scheme: dark" in picture
    assert re.findall(r"""(?:href|src)=["'](?!#)|url\((?!#)""", picture) == []


def test_a_result_says_of_which_tree_and_machine_it_is() -> None:
    said = result("relay")

    assert all(said[key] for key in ("began", "tree", "machine", "cores", "load"))


def test_the_tokens_that_are_drawn_stand_on_the_page() -> None:
    page = (pages.DOCS / "tokens.md").read_text(encoding="utf-8")

    for row in result("tokens")["rows"]:
        share = row["share_percent"]
        texts = (f" {share:g} %", f" {share:.1f} %")
        lines = [line for line in page.splitlines() if line.startswith(f"| {row['way']} |")]
        assert any(each in line.replace("*", "") for line in lines for each in texts), lines


def test_the_times_that_are_drawn_stand_on_the_page() -> None:
    page = (pages.DOCS / "benchmarks.md").read_text(encoding="utf-8")

    for name, added in result("relay")["added_p50_ms"].items():
        line = next(line for line in page.splitlines() if line.startswith(f"| {name} |"))
        cells = [cell.strip() for cell in line.split("|")[2:5]]
        for cell, size in zip(cells, ("100 B", "10 KB", "1 MB"), strict=True):
            decimals = len(cell.partition(".")[2])
            assert float(cell) == round(added[size], decimals), line


def test_every_chart_is_shown_on_some_page() -> None:
    shown = "".join(page.read_text(encoding="utf-8") for page in pages.pages())

    assert [name for name in NAMES if f"pictures/chart-{name}.svg" not in shown] == []


def test_the_readme_shows_two_charts() -> None:
    readme = Path(pages.README).read_text(encoding="utf-8")

    assert len(set(re.findall(r"pictures/(chart-\w+)\.svg", readme))) == 2
