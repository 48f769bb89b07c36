"""Draw docs/pictures/chart-*.svg from figures in bench/results: `make charts`.

Each chart is one SVG that is light or dark as its reader's system is. It fetches nothing and names
below its bars of which tree, machine and day its figures are.
"""

import json
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "bench" / "results"
OUT = ROOT / "docs" / "pictures"
# Drawn in colours that stand for a role; the style sheet says what each looks like.
_INK, _PAPER, _OURS, _OTHERS, _FAINT = "#010101", "#020202", "#030303", "#040404", "#050505"
_STYLE = """<style>
:root { --ink: #1f2328; --paper: #ffffff; --ours: #3f51b5; --others: #aab2bd; --faint: #d8dee4; }
@media (prefers-color-scheme: dark) {
:root { --ink: #e6edf3; --paper: #16181d; --ours: #8c9eff; --others: #5b6470; --faint: #30363d; } }
text { font-family: system-ui, sans-serif; }
</style>"""
_ROLES = {_INK: "ink", _PAPER: "paper", _OURS: "ours", _OTHERS: "others", _FAINT: "faint"}


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture: a bar for each row, the best first."""

    name: str
    title: str
    unit: str
    bars: Sequence[tuple[str, float]]
    source: str


def main() -> None:
    """Write every chart anew."""
    runs = ("relay", "tokens")
    read = [json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")) for name in runs]
    for chart in charts(*read):
        text = drawn(chart)
        place = OUT / f"chart-{chart.name}.svg"
        place.write_text(text, encoding="utf-8")
        print(place.relative_to(ROOT))  # noqa: T201 - what a person wants to know


def charts(relay: dict[str, Any], tokens: dict[str, Any]) -> list[Chart]:
    """Return what is drawn of a run of bench.relay, and of a day of bench.tokens.

    The run has what `--json` writes, or a part of it: a row without a figure has no bar.
    """
    added = {
        name: sizes["100 B"] for name, sizes in relay["added_p50_ms"].items() if "100 B" in sizes
    }
    rates = {
        name: row["calls_per_second"]["32"]
        for name, row in relay["rows"].items()
        if name != "direct" and "calls_per_second" in row
    }
    memory = {
        name: row["memory"]["relay"]["pss_mb"]
        for name, row in relay["rows"].items()
        if name != "direct" and "memory" in row
    }
    return [
        Chart(
            "latency",
            "What a relay adds to a call of 100 B (median)",
            "ms, less is better",
            _ranked(added),
            source_of(relay),
        ),
        Chart(
            "throughput",
            "Calls a second with 32 under way",
            "calls/s, more is better",
            _ranked(rates, is_most_best=True),
            source_of(relay),
        ),
        Chart(
            "memory",
            "Memory of the relay, without servers and model",
            "MB (PSS), less is better",
            _ranked(memory),
            source_of(relay),
        ),
        Chart(
            "tokens",
            f"A day with {tokens['servers']} servers and {tokens['tools']} tools",
            "price of prompts in % of listing all tools, less is better",
            _ranked({row["way"]: row["share_percent"] for row in tokens["rows"]}),
            tokens["source"],
        ),
    ]


def source_of(run: dict[str, Any]) -> str:
    """Return of which tree, machine and day a run of bench.relay is."""
    before, after = run["load"]
    load = f"{before:.0f}" if before == after else f"{before:.0f} to {after:.0f}"
    machine = f"{run['cores']} cores, {run['machine']}"
    return f"bench.relay, {run['began']}, tree {run['tree']}, {machine}, load {load}"


def drawn(chart: Chart) -> str:
    """Return the SVG of a chart."""
    # The extra `docs` has it; what is to be drawn is known without.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "capd", "font.size": 11})
    names = [name for name, _ in chart.bars]
    values = [value for _, value in chart.bars]
    figure, axes = plt.subplots(figsize=(7.6, 0.36 * len(names) + 1.5), facecolor=_PAPER)
    colours = [_OURS if name.startswith("capd") else _OTHERS for name in names]
    bars = axes.barh(names, values, color=colours, height=0.68)
    axes.invert_yaxis()
    axes.set_facecolor(_PAPER)
    axes.set_title(chart.title, color=_INK, loc="left", fontsize=13, fontweight="bold")
    axes.set_xlabel(chart.unit, color=_INK)
    axes.bar_label(bars, labels=[written(value) for value in values], padding=4, color=_INK)
    axes.margins(x=0.12)
    axes.tick_params(colors=_INK, length=0)
    axes.grid(axis="x", color=_FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    figure.text(0.01, 0.012, chart.source, color=_INK, fontsize=7.5)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    place = OUT / f"chart-{chart.name}.svg"
    figure.savefig(place, facecolor=_PAPER, metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return _styled(place.read_text(encoding="utf-8"))


def _ranked(figures: dict[str, float], *, is_most_best: bool = False) -> list[tuple[str, float]]:
    return sorted(figures.items(), key=lambda item: item[1], reverse=is_most_best)


def written(value: float) -> str:
    """Return a figure with the digits that a reader can use."""
    if value >= 100:  # noqa: PLR2004
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def _styled(svg: str) -> str:
    for colour, role in _ROLES.items():
        svg = svg.replace(colour, f"var(--{role})")
    # A font of matplotlib's own is on few machines; the style sheet names the reader's.
    svg = re.sub(r"(font:[^;\"]*?px) [^;\"]*", r"\1 system-ui, sans-serif", svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)
    return re.sub(r"(<svg[^>]*>)", rf"\1\n{_STYLE}", svg, count=1)


if __name__ == "__main__":
    main()
