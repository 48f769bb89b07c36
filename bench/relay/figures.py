"""Turns measurements into figures, tables and verdicts on the limits that capd has to meet."""

import statistics
from collections.abc import Iterable
from typing import Any

from bench.relay.measures import IN_FLIGHT, WORKLOADS, quantile
from bench.relay.process_trees import Memory
from bench.relay.rounds import Row
from bench.relay.subjects import CAPD, DIRECT

_SIZES = [workload.name for workload in WORKLOADS if workload.is_result]
_SMALLEST = _SIZES[0]
_RIVAL = "mcp-hub"
_NATIVE = ("dmcp", "slop-mcp")
_MOST_OF_RIVAL = 0.6
_TIMES_RIVAL = 4.0
_MOST_KB = 15.0

Figures = dict[str, Any]


def figures_of(row: Row) -> Figures:
    """Return one row's figures for the JSON file."""
    if row.why_not and not row.latency:
        return {"language": row.language, "not_measured": row.why_not}
    return {
        "language": row.language,
        "note": row.note,
        "troubles": row.troubles,
        "latency": {name: _latency(rounds) for name, rounds in row.latency.items()},
        "calls_per_second": {
            str(in_flight): round(statistics.median(each))
            for in_flight, each in row.per_second.items()
        },
        "relay_cpu_ms_per_call": _median(row.relay_cpu_ms),
        "driver_cpu_ms_per_call": _median(row.driver_cpu_ms),
        "memory": {
            "relay": _memory(row.relay_memory),
            "model": _memory(row.model_memory),
            "server": _memory(row.server_memory),
        },
        "initialize_ms": _median(row.initialize_ms),
        "first_call_ms": _median(row.first_call_ms),
    }


def added(rows: dict[str, Figures]) -> dict[str, dict[str, float]]:
    """Return by how many ms the median call takes longer than a direct one, by row and size."""
    direct = _p50s(rows.get(DIRECT, {}))
    return {
        name: {
            size: round(p50 - direct[size], 3) for size, p50 in _p50s(row).items() if size in direct
        }
        for name, row in rows.items()
        if name != DIRECT and "latency" in row
    }


def tables(rows: dict[str, Figures]) -> list[str]:
    """Return the lines to print."""
    lines = [_titles("p50 / p99 ms", [workload.name for workload in WORKLOADS], 16)]
    for name, row in rows.items():
        if "latency" not in row:
            lines.append(f"{name:<13} not measured: {row['not_measured']}")
            continue
        cells = [_pair(row["latency"].get(workload.name)) for workload in WORKLOADS]
        lines.append(_line(name, cells, 16))
    titles = [f"{each} in flight" for each in IN_FLIGHT]
    lines += [
        "",
        _titles("calls/s", [*titles, "relay CPU ms", "driver CPU ms", "p50, round 1"], 14),
    ]
    for name, row in _measured(rows):
        rates = [row["calls_per_second"].get(str(each), "-") for each in IN_FLIGHT]
        cpu = [row["relay_cpu_ms_per_call"], row["driver_cpu_ms_per_call"]]
        cpu.append(_first_round(row))
        lines.append(_line(name, [*rates, *cpu], 14))
    titles = ["relay PSS", "relay RSS", "model PSS", "server PSS", "initialize ms", "1st call ms"]
    lines += ["", _titles("MB and start", titles, 14)]
    for name, row in _measured(rows):
        memory = row["memory"]
        cells = [memory["relay"]["pss_mb"], memory["relay"]["rss_mb"], memory["model"]["pss_mb"]]
        cells += [memory["server"]["pss_mb"], row["initialize_ms"], row["first_call_ms"]]
        lines.append(_line(name, cells, 14))
    extra = added(rows)
    lines += ["", _titles("added p50 ms", [workload.name for workload in WORKLOADS], 16)]
    for name, more in extra.items():
        lines.append(_line(name, [more.get(workload.name, "-") for workload in WORKLOADS], 16))
    lines += ["", *_ratio_lines(rows, extra)]
    for name, row in _measured(rows):
        lines += [f"note: {name} {row['note']}"] if row["note"] else []
        lines += [f"trouble: {name}, {what}: {why}" for what, why in row["troubles"].items()]
    return lines


def acceptance(rows: dict[str, Figures], idle_kb: float | None) -> list[Figures]:
    """Return each limit and whether capd meets it; None if a figure is missing."""
    extra = added(rows)
    ours = extra.get(CAPD, {})
    scripted = [
        name
        for name, row in rows.items()
        if row["language"] in {"Python", "Node"} and name in extra and not name.startswith(CAPD)
    ]
    slower_than = [
        f"{name} at {size}: {ours[size]} to {extra[name][size]} ms"
        for name in scripted
        for size in _SIZES
        if size in ours and size in extra[name] and ours[size] >= extra[name][size]
    ]
    of_rival = _ratio(ours.get(_SMALLEST), extra.get(_RIVAL, {}).get(_SMALLEST))
    most = str(max(IN_FLIGHT))
    rates = {name: row.get("calls_per_second", {}).get(most) for name, row in rows.items()}
    times_rival = _ratio(rates.get(CAPD), rates.get(_RIVAL))
    lines: list[Figures] = [
        {
            "line": "adds less than every Python and Node peer at every size",
            "is_met": (not slower_than) if ours and scripted else None,
            "figures": "; ".join(slower_than) or f"compared with {', '.join(scripted)}",
        },
        {
            "line": f"at most {_MOST_OF_RIVAL} of {_RIVAL}'s added p50 at {_SMALLEST}",
            "is_met": None if of_rival is None else of_rival <= _MOST_OF_RIVAL,
            "figures": f"{of_rival}",
        },
        {
            "line": f"at {most} in flight at least {_TIMES_RIVAL:g} times {_RIVAL}'s calls/s",
            "is_met": None if times_rival is None else times_rival >= _TIMES_RIVAL,
            "figures": f"{times_rival} ({rates.get(CAPD)} to {rates.get(_RIVAL)})",
        },
        {
            "line": f"1,000 idle sessions cost at most {_MOST_KB:g} KB each",
            "is_met": None if idle_kb is None else idle_kb <= _MOST_KB,
            "figures": f"{idle_kb} KB of the daemon's PSS",
        },
    ]
    for name in _NATIVE:
        if name in extra and ours:
            pairs = [
                f"{size} {ours[size]} to {extra[name][size]} ms"
                for size in _SIZES
                if size in ours and size in extra[name]
            ]
            text = f"added p50 {', '.join(pairs)}; calls/s {rates.get(CAPD)} to {rates.get(name)}"
            lines.append({"line": f"distance to {name}", "is_met": None, "figures": text})
    return lines


def acceptance_lines(lines: Iterable[Figures]) -> list[str]:
    words = {True: "met", False: "MISSED", None: "stated"}
    return [f"{words[each['is_met']]:<7} {each['line']}: {each['figures']}" for each in lines]


def _ratio_lines(rows: dict[str, Figures], extra: dict[str, dict[str, float]]) -> list[str]:
    ours = extra.get(CAPD, {})
    titles = [*_SIZES, *(f"calls/s at {each}" for each in IN_FLIGHT)]
    lines = [_titles("capd to peer", titles, 16)]
    for name, more in extra.items():
        if name == CAPD:
            continue
        cells: list[object] = [_ratio(ours.get(size), more.get(size)) for size in _SIZES]
        for each in IN_FLIGHT:
            rates = [
                rows.get(who, {}).get("calls_per_second", {}).get(str(each)) for who in (CAPD, name)
            ]
            cells.append(_ratio(*rates))
        lines.append(_line(name, cells, 16))
    return lines


def _measured(rows: dict[str, Figures]) -> list[tuple[str, Figures]]:
    return [(name, row) for name, row in rows.items() if "latency" in row]


def _latency(rounds: list[list[float]]) -> Figures:
    together = [each for one in rounds for each in one]
    medians = [quantile(one, 0.5) for one in rounds]
    return {
        "p50_ms": round(quantile(together, 0.5), 3),
        "p99_ms": round(quantile(together, 0.99), 3),
        "calls": len(together),
        "p50_ms_of_rounds": [round(each, 3) for each in medians],
    }


def _first_round(row: Figures) -> float | None:
    """Return the first round's median at the smallest size, before a JIT compiler has warmed up."""
    smallest = row["latency"].get(_SMALLEST)
    return smallest["p50_ms_of_rounds"][0] if smallest else None


def _p50s(row: Figures) -> dict[str, float]:
    return {name: each["p50_ms"] for name, each in row.get("latency", {}).items()}


def _memory(memory: Memory) -> Figures:
    return {"pss_mb": round(memory.pss_mb, 1), "rss_mb": round(memory.rss_mb, 1)}


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else round(ours / theirs, 2)


def _pair(figures: Figures | None) -> str:
    return f"{figures['p50_ms']:.2f} / {figures['p99_ms']:.2f}" if figures else "-"


def _titles(first: str, titles: list[str], width: int) -> str:
    return _line(first, titles, width)


def _line(name: str, cells: Iterable[object], width: int) -> str:
    return f"{name:<13}" + "".join(f"{_cell(cell):>{width}}" for cell in cells)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else f"{value}"
