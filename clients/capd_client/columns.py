"""Tables for the terminal: a line for each row, no wider than the terminal, with coloured states.

On a narrow terminal, the columns of long texts (such as `error`) are first cut to `_NARROWEST`
characters. Then whole columns are left out, in the order of `_LEAST_WANTED`. A name, or anything
else that a person types, is never cut. In a pipe or a file nothing is cut or left out.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

from capd_client.terminal import has_colour, limited_width, printable, styled

_NARROWEST = 16
_GAP = "  "
_CUT = "…"

# Columns of long texts, which are cut first.
_FREE = frozenset(
    {"error", "file", "for", "path", "project", "runs in", "sandbox", "triggers", "what it does"}
)
_RIGHT = frozenset({"calls", "mean", "pid", "restarts", "saved", "score", "tokens", "uses"})
_LEAST_WANTED = (
    *("membership", "sandbox", "runs in", "linked", "mode", "provider", "mean", "worked", "uses"),
    *("restarts", "pid"),
    *("scope", "saved", "tokens", "up", "missing", "servers", "project", "file", "triggers"),
    *("error", "held by", "active in", "kind"),
)
_STATES = {
    **dict.fromkeys(("ready", "on", "yes", "connected", "installed"), "green"),
    **dict.fromkeys(("starting", "loading", "stopping", "locked", "pending", "draining"), "yellow"),
    **dict.fromkeys(("failed", "parked", "error", "unusable"), "red"),
    **dict.fromkeys(("off", "none", "idle", "not installed"), "dim"),
}
"""The style of a cell by its text before a colon; only columns of states are styled."""
_STATE_COLUMNS = frozenset({"routable", "state"})


def cell_width(text: str) -> int:
    """Return how many columns `text` takes on a terminal."""
    return sum(
        0
        if unicodedata.combining(each)
        else 2
        if unicodedata.east_asian_width(each) in {"W", "F"}
        else 1
        for each in text
    )


def table_lines(
    titles: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    columns: int | None,
    is_coloured: bool = False,
) -> list[str]:
    """Return the lines of a table, at most `columns` wide if possible; None means any width.

    A column that has a title and no other text is left out. If all titles are empty, there is no
    head; without rows the only line is `none`. With `is_coloured`, cells of states have a colour.
    """
    cells = [[printable("" if cell is None else cell).strip() for cell in row] for row in rows]
    if not cells:
        return ["  none"]
    kept = [at for at in range(len(titles)) if not titles[at] or any(row[at] for row in cells)]
    widths = {
        at: max(cell_width(titles[at]), *(cell_width(row[at]) for row in cells)) for at in kept
    }
    if columns is not None:
        _fit(titles, widths, columns)
    lines = []
    if any(titles):
        head = _line(titles, titles, widths)
        lines.append(styled(head, "bold", is_coloured=is_coloured))
    lines += [_line(titles, row, widths, is_coloured=is_coloured) for row in cells]
    return lines


def print_table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table with these titles and rows to standard output, fitted to the terminal."""
    import click  # noqa: PLC0415 - every caller has imported it; `table_lines` does without it

    lines = table_lines(titles, rows, columns=limited_width(), is_coloured=has_colour())
    for line in lines:
        click.echo(line, color=True)


def _fit(titles: Sequence[str], widths: dict[int, int], columns: int) -> None:
    """Narrow columns, and leave some out, until a line of the table fits into `columns`, if it can.

    `widths` has the width of each column by its index; it is changed in place.
    """
    while True:
        over = 1 + sum(widths.values()) + len(_GAP) * (len(widths) - 1) - columns
        free = [at for at in widths if titles[at] in _FREE and widths[at] > _NARROWEST]
        for at in sorted(free, key=lambda at: -widths[at]):
            cut = min(over, widths[at] - _NARROWEST)
            if cut > 0:
                widths[at] -= cut
                over -= cut
        if over <= 0:
            return
        named = {titles[at]: at for at in widths}
        unwanted = next((named[title] for title in _LEAST_WANTED if title in named), None)
        if unwanted is None or len(widths) == 1:
            return
        del widths[unwanted]


def _line(
    titles: Sequence[str],
    row: Sequence[str],
    widths: dict[int, int],
    *,
    is_coloured: bool = False,
) -> str:
    parts = []
    for at, width in widths.items():
        text = _cut(row[at], width)
        room = " " * (width - cell_width(text))
        style = _STATES.get(text.split(":")[0], "") if titles[at] in _STATE_COLUMNS else ""
        shown = styled(text, style, is_coloured=is_coloured) if style else text
        parts.append(room + shown if titles[at] in _RIGHT else shown + room)
    return f" {_GAP.join(parts)}".rstrip()


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    taken = ""
    for each in text:
        if cell_width(taken + each) >= width:
            break
        taken += each
    return taken.rstrip() + _CUT
