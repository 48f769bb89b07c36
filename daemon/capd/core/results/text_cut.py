"""A text cut to a room of characters: its first lines and its last ones, whole where possible."""

from dataclasses import dataclass

from capd.core.results.json_cut import encoded_width

_HEAD_SHARE = 0.7
"""Of the room: tables and source begin with what explains the rest, logs end with what matters."""
_WHOLE_LINES = 0.8
"""A cut moves to the border of a line, unless more than a fifth of its part would go with that."""
_TRIES = 12


@dataclass(frozen=True, slots=True)
class CutText:
    """A text, cut; `start` to `end` is left out."""

    text: str
    start: int
    end: int
    lines: int
    """How many line ends are in what is left out."""


def cut_text(text: str, room: int, *, has_end: bool = True) -> CutText | None:
    """Return `text` in `room` characters of JSON; None where not even the note has room.

    Of a text whose end is not at hand only the beginning is kept.
    """
    inner = float(room)
    for _ in range(_TRIES):
        cut = _cut(text, int(inner), has_end=has_end)
        if (over := encoded_width(cut.text) / max(room, 1)) <= 1:
            return cut
        inner *= min(0.97 / over, 0.95)
        if inner < 1:
            return None
    return None


def _cut(text: str, room: int, *, has_end: bool) -> CutText:
    # The note takes about a hundred characters.
    inner = max(room - 120, 0)
    head = int(inner * _HEAD_SHARE) if has_end else inner
    border = text.rfind("\n", 0, head) + 1
    start = border if border >= head * _WHOLE_LINES else head
    tail = inner - head
    end = max(len(text) - tail, start)
    border = text.find("\n", end - 1) + 1 if end else 0
    if border and len(text) - border >= tail * _WHOLE_LINES:
        end = max(border, start)
    lines = text.count("\n", start, end)
    note = _note(start, end, lines)
    before = "" if start == 0 or text[start - 1] == "\n" else "\n"
    return CutText(f"{text[:start]}{before}{note}\n{text[end:]}", start, end, lines)


def _note(start: int, end: int, lines: int) -> str:
    counted = f"{lines:,} lines, " if lines else ""
    return f"[… capd left out {counted}{end - start:,} characters: offset {start} to {end} …]"
