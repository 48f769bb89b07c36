"""The table of costs, and whether capd meets its limits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bench.tokens.prompts import Kind, Tokens, prompts
from bench.tokens.rows import AGGREGATOR, AUTO, Day50
from bench.tokens.token_price import Bill, Rates, bill

STABLE_AT_MOST = 0.23
SCRIPTS_AT_MOST = 0.14
STABLE_REQUESTS = 104
APPENDS_AT_MOST = 0.4
UNHOOKED_AT_MOST = 0.26
AUTO_AT_MOST = 1.01


@dataclass(frozen=True, slots=True)
class Line:
    """One row, for one kind of client."""

    name: str
    kind: Kind
    mode: str
    bill: Bill
    expired: Bill
    """The bill if the provider's cache has expired at the beginning of each turn."""
    calls: int
    searches: int
    lost: int
    failed: int
    tools: int
    hands_over_turns: bool = True
    """Whether its client has a prompt hook."""
    writes_scripts: bool = False

    def units(self, rates: Rates) -> float:
        return self.bill.units(rates)


def lines(day: Day50, tokens: Tokens, rates: Rates) -> list[Line]:
    """Return a row's lines, one for each kind of client."""
    return [_line(day, kind, tokens, rates) for kind in day.row.kinds]


def floor(day: Day50, tokens: Tokens, rates: Rates) -> Line:
    """Return what the messages of a day cost without any tool in a prompt: the least possible."""
    played = [
        replace(each, requests=[replace(request, tools=()) for request in each.requests])
        for each in day.played
    ]
    row = replace(day.row, name="messages alone")
    return _line(Day50(row, played, day.mode), "tools first", tokens, rates)


def _line(day: Day50, kind: Kind, tokens: Tokens, rates: Rates) -> Line:
    kept, expired = Bill(), Bill()
    for conversation in day.played:
        requests = prompts(conversation.requests, kind, tokens)
        kept += bill(requests, rates)
        expired += bill(requests, rates, expires_between_turns=True)
    return Line(
        day.row.name,
        kind,
        day.mode,
        kept,
        expired,
        sum(played.calls for played in day.played),
        sum(played.searches for played in day.played),
        sum(len(played.lost) for played in day.played),
        sum(len(played.failed) for played in day.played),
        max(played.longest_list for played in day.played),
        day.row.hands_over_turns,
        day.row.writes_scripts,
    )


def table(shown: Sequence[Line], rates: Rates) -> str:
    """Return the table in Markdown; tokens and units in thousands."""
    everything = shown[0]
    head = (
        "way, client",
        "mode",
        "most tools",
        "requests",
        "prompt k",
        "read k",
        "written k",
        "output k",
        "breaks",
        "broken k",
        "units k",
        "of all tools",
        "prompt, of all tools",
        "expired, of all tools",
        "searches",
        "lost",
    )
    rows = [head, tuple("---" for _ in head)]
    for line in shown:
        bill = line.bill
        rows.append(
            (
                f"{line.name}, {line.kind}" if line.kind not in line.name else line.name,
                line.mode or "-",
                str(line.tools),
                str(bill.requests),
                _k(bill.prompt),
                _k(bill.read),
                _k(bill.written + bill.plain),
                _k(bill.output),
                str(bill.breaks),
                _k(bill.broken),
                _k(line.units(rates)),
                f"{line.units(rates) / everything.units(rates):.1%}",
                f"{bill.prompt / everything.bill.prompt:.1%}",
                f"{line.expired.units(rates) / everything.expired.units(rates):.1%}",
                str(line.searches),
                str(line.lost),
            )
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def verdicts(shown: Sequence[Line], rates: Rates, *, is_whole: bool) -> list[str]:
    """Return a line for each limit, met or missed. Some need all ten servers (`is_whole`)."""
    by_name = {line.name: line for line in reversed(shown)}
    everything = by_name[AGGREGATOR.name]
    told = []
    if is_whole:
        for name, most in (
            ("capd stable", STABLE_AT_MOST),
            ("capd stable + scripts", SCRIPTS_AT_MOST),
            ("capd dynamic, appends", APPENDS_AT_MOST),
            ("capd stable, no prompt hook", UNHOOKED_AT_MOST),
        ):
            share = by_name[name].units(rates) / everything.units(rates)
            told.append(_verdict(share <= most, f"{name}: {share:.1%} of all tools", f"{most:.0%}"))
        requests = by_name["capd stable"].bill.requests
        what = f"capd stable: {requests} requests"
        told.append(_verdict(requests <= STABLE_REQUESTS, what, str(STABLE_REQUESTS)))
    for auto in (line for line in shown if line.name in {row.name for row in AUTO}):
        best = min(_rivals(shown, auto), key=lambda line: line.units(rates))
        ratio = auto.units(rates) / best.units(rates)
        what = f"{auto.name} is {auto.mode}: {ratio:.2f} of the best, {best.name}"
        told.append(_verdict(ratio <= AUTO_AT_MOST, what, f"{AUTO_AT_MOST}"))
    lost = sum(line.lost for line in shown)
    told.append(_verdict(lost == 0, f"{lost} calls did not reach their tool", "none"))
    return told


def _rivals(shown: Sequence[Line], auto: Line) -> Iterable[Line]:
    """Return the lines that the mode chosen by capd (`auto`) is compared with, for one client."""
    for line in shown:
        is_capd = line.name.startswith("capd") and line.writes_scripts == auto.writes_scripts
        is_same = line.hands_over_turns == auto.hands_over_turns and (
            line.kind == auto.kind or line.bill.breaks == 0
        )
        if line.name == AGGREGATOR.name or (is_capd and is_same):
            yield line


def _verdict(is_met: bool, what: str, wanted: str) -> str:
    return f"{'met' if is_met else 'MISSED'}: {what} (wanted: at most {wanted})"


def _k(number: float) -> str:
    return f"{number / 1000:,.1f}"
