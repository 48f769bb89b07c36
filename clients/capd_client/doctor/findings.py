"""What a check reports: how bad it is, what it is, why, and how to repair it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]

LEVELS: tuple[Level, ...] = ("ok", "note", "warning", "error")
"""The levels, best first. `note`: nothing is wrong, but good to know. `warning`: capd works in
part. `error`: something does not work until it is repaired."""

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its level, and a text. A problem has a reason and a repair too."""

    check: str
    level: Level
    what: str
    why: str = ""
    fix: str = ""


def worst(findings: Iterable[Finding]) -> Level:
    """Return the worst level among the findings; `ok` if there are none."""
    levels: list[Level] = [LEVELS[0], *(finding.level for finding in findings)]
    return max(levels, key=LEVELS.index)


def document(findings: Iterable[Finding]) -> dict[str, object]:
    """Return the findings as the document that `capd doctor --json` prints."""
    listed = list(findings)
    return {
        "schema": SCHEMA,
        "level": worst(listed),
        "findings": [asdict(finding) for finding in listed],
    }
