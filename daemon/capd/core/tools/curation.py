"""Curation: ranks single tools for a message, in addition to the tools of active capabilities.

    hybrid     cosine + 0.15 x BM25 / best BM25 + 0.05 x name n-grams + use; pins before all others
    keyword    10 x words of the message in the description + 0.5 x uses + 100 for pins

Uses in the last 24 hours and pins change the order, but only the message makes a tool *clear*: a
tool that is used all day is not added to a turn that does not ask for it. With the scorer `hybrid`,
a tool is clear if it shares rare words with the message, is near to it in meaning, and fits about
as well as the best one.

The thresholds were measured: docs/design/tool-search.md, "Curation".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Literal

from capd.core.tools.tool_search import LOWEST_COSINE, Evidence, ToolIndex
from capd.core.tools.tool_text import Tool
from capd_protos.types import WireName

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

WINDOW = 86_400.0
"""Seconds for which a call counts as a recent use."""

CLEAR_COSINE = 0.4
CLEAR_WORDS = 2.0
"""The least sum of the rarities of the words that a clear tool shares with the message. A word that
only one tool has counts 1, so two such words are enough, or more words that are less rare."""
CLEAR_WORDS_ALONE = 3.5
"""The same limit if there are no vectors."""
AS_GOOD = 0.05
"""How far below the best score the score of a clear tool may be."""

USE_WEIGHT = 0.1
MOST_USES = 15
"""Further uses do not count: a tool called in a loop must not displace what fits better."""

FALLBACK_TOOLS = 2
"""How many tools of a capability are returned if the message fits none of them."""

SPOKEN_WORDS = 1.5
"""The limit `CLEAR_WORDS` for `ranked_within`, which compares only the tools of given capabilities.
There, fewer rare words are enough."""
SPOKEN_COSINE = 0.2
SPOKEN_WORDS_ALONE = 2.5

_PIN_FLOOR = 100.0
_SHORTEST_TERM_BYTES = 4
CLEAR_OVERLAP = 3
CLEAR_SHARE = 0.5
"""For the scorer `keyword`: a clear tool's description has at least `CLEAR_OVERLAP` of the
message's terms, and at least this share of them."""


@dataclass(frozen=True, slots=True)
class CurationRules:
    """The user's settings for curation, which chooses single tools for each message."""

    kind: Literal["top-k", "off"] = "top-k"
    """`off` chooses nothing: every tool is listed for which the client's list has room."""
    k: int = 15
    """How many of the best tools are considered for a message."""
    new_per_turn: int = 3
    """How many tools one turn may add to the list, or suggest."""
    scorer: Literal["hybrid", "keyword"] = "hybrid"

    @property
    def passes_all(self) -> bool:
        """Whether every permitted tool is listed from the start."""
        return self.kind == "off"

    @property
    def chooses(self) -> bool:
        """Whether a user's message may add tools to the list."""
        return self.kind == "top-k" and self.k > 0 and self.new_per_turn > 0


@dataclass(frozen=True, slots=True)
class BestTool:
    """One of the best tools for a message."""

    tool: Tool
    score: float
    is_clear: bool
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class Field:
    """The tools that may be chosen for a message, and facts about them."""

    left_out: Collection[WireName] = ()
    """Tools that the session may not use, or has already through a capability."""
    pins: Sequence[WireName] = ()
    """The pinned tools, in the user's order."""
    uses: Mapping[WireName, int] | None = None
    """How often each tool was called in the last 24 hours."""


def curated(
    index: ToolIndex, message: str, k: int, field: Field, vector: "Vectors | None" = None
) -> list[BestTool]:
    """Return the best `k` tools for a message: pins in their order, then the others by score.

    `vector` is the unit vector of `message`; None to compare words alone. `field` says which tools
    to leave out, which are pinned, and how often each was used.
    """
    compared = (*field.pins, *(field.uses or ()))
    beside = [row for name in compared if (row := index.row(name)) is not None]
    evidence = index.evidence(message, vector, beside)
    pins = [name for name in dict.fromkeys(field.pins) if name not in field.left_out]
    pinned = [row for name in pins if (row := index.row(name)) is not None][:k]
    rows = _best(index, evidence, field, k - len(pinned), frozenset(pinned))
    best = max((float(evidence.scores[row]) for row in rows), default=0.0)
    return [
        BestTool(
            index.tools[row],
            score=float(evidence.scores[row]) + _use(index.tools[row], field),
            is_clear=float(evidence.scores[row]) >= best - AS_GOOD
            and _is_clear(index, evidence, row),
            is_pinned=row in pinned,
        )
        for row in (*pinned, *rows)
    ]


@dataclass(frozen=True, slots=True)
class RankedWithin:
    """The tools of one capability in the order in which they fit a message."""

    tools: tuple[Tool, ...] = ()
    """The tools, the best first."""
    is_spoken_of: bool = False
    """Whether the message clearly means one of these tools."""


def ranked_within(
    index: ToolIndex,
    message: str,
    inside: Collection[WireName],
    *,
    most: int,
    uses: Mapping[WireName, int],
    vector: "Vectors | None" = None,
) -> RankedWithin:
    """Return at most `most` tools of one capability, those that best fit the message first.

    `inside` are the names under which clients know its tools, `uses` their recent uses, which
    decide near ties. If the message fits none of the tools, the two most used tools are returned,
    or all tools if there are at most `most`.
    """
    rows = [row for name in sorted(inside) if (row := index.row(name)) is not None]
    if not rows:
        return RankedWithin()
    evidence = index.evidence(message, vector, rows)
    field = Field(uses=uses)
    is_silent = all(
        float(evidence.by_words[row]) <= 0
        and (evidence.cosines is None or float(evidence.cosines[row]) < LOWEST_COSINE)
        for row in rows
    )
    if is_silent:
        rows.sort(key=lambda row: -uses.get(index.tools[row].wire_name, 0))
        kept = most if len(rows) <= most else FALLBACK_TOOLS
        return RankedWithin(tuple(index.tools[row] for row in rows[: min(most, kept)]))
    rows.sort(key=lambda row: -(float(evidence.scores[row]) + _use(index.tools[row], field)))
    best = tuple(index.tools[row] for row in rows[:most])
    return RankedWithin(best, any(_is_spoken_of(index, evidence, row) for row in rows))


def _is_spoken_of(index: ToolIndex, evidence: Evidence, row: int) -> bool:
    shared = float(evidence.by_words[row]) / index.rarest
    if evidence.cosines is None:
        return shared >= SPOKEN_WORDS_ALONE
    return shared >= SPOKEN_WORDS and float(evidence.cosines[row]) >= SPOKEN_COSINE


def _best(
    index: ToolIndex, evidence: Evidence, field: Field, k: int, besides: frozenset[int]
) -> list[int]:
    import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without turns never pays

    totals = evidence.scores.copy()
    for name in field.uses or ():
        row = index.row(name)
        if row is not None:
            totals[row] += _use(index.tools[row], field)
    chosen: list[int] = []
    for row in np.argsort(-totals, kind="stable").tolist():
        if len(chosen) >= k:
            break
        if row not in besides and index.tools[row].wire_name not in field.left_out:
            chosen.append(row)
    return chosen


def _use(tool: Tool, field: Field) -> float:
    uses = (field.uses or {}).get(tool.wire_name, 0)
    return USE_WEIGHT * log2(1 + min(uses, MOST_USES)) / log2(1 + MOST_USES)


def _is_clear(index: ToolIndex, evidence: Evidence, row: int) -> bool:
    shared = float(evidence.by_words[row]) / index.rarest
    if evidence.cosines is None:
        return shared >= CLEAR_WORDS_ALONE
    return shared >= CLEAR_WORDS and float(evidence.cosines[row]) >= CLEAR_COSINE


def curated_by_keywords(
    tools: Sequence[Tool], message: str, k: int, field: Field
) -> list[BestTool]:
    """Return the best `k` of `tools` for a message by the scorer `keyword`, by words alone.

    `tools` are in the order of the catalog, and keep that order if there are at most `k`.
    """
    inside = [tool for tool in tools if tool.wire_name not in field.left_out]
    pins = frozenset(field.pins)
    uses = field.uses or {}
    wanted = terms(message)
    overlaps = [overlap(wanted, tool.description) for tool in inside]
    scores = [
        published_score(number, uses.get(tool.wire_name, 0), is_pinned=tool.wire_name in pins)
        for tool, number in zip(inside, overlaps, strict=True)
    ]
    return [
        BestTool(
            inside[at],
            scores[at],
            is_clear=overlaps[at] >= max(CLEAR_OVERLAP, CLEAR_SHARE * len(wanted)),
            is_pinned=inside[at].wire_name in pins,
        )
        for at in published_order(scores, k)
    ]


def terms(message: str) -> list[str]:
    """Return the words of a message by which the scorer `keyword` compares it.

    They have four bytes or more. Punctuation is part of a word, and a repeated word counts again.
    """
    words = message.lower().split()
    return [word for word in words if len(word.encode()) >= _SHORTEST_TERM_BYTES]


def overlap(wanted: Sequence[str], description: str) -> int:
    """Return how many of the words `wanted` occur in a description, also within its words."""
    text = description.lower()
    return sum(term in text for term in wanted)


def published_score(shared: int, uses: int, *, is_pinned: bool) -> float:
    """Return a tool's score by the scorer `keyword`.

    `shared` is how many words of the message its description has (`overlap`), and `uses` how often
    it was called in the last 24 hours.
    """
    return 10.0 * shared + 0.5 * uses + (_PIN_FLOOR if is_pinned else 0.0)


def published_order(scores: Sequence[float], k: int) -> list[int]:
    """Return the indexes of the best `k` of `scores`; all in order if there are at most `k`."""
    if len(scores) <= k:
        return list(range(len(scores)))
    return sorted(range(len(scores)), key=lambda at: -scores[at])[:k]
