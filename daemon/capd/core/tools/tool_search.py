"""Ranks tools for a question: exact names first, then words and vectors as one score.

    tier      0 the whole wire name   1 the bare name   2 equal after folding   3 everything else
    score     cosine + 0.15 x BM25 / best BM25 + 0.05 x name n-grams
              without vectors the two lexical parts alone, in the same proportion

Only a question that *is* a name can reach tiers 0 to 2. Otherwise a name counts like the words of a
description, so no tool is preferred for its name. A tool that the session may not use is never a
hit; it is reported separately, with the reason. The order is the same whenever tools, question and
vectors are: ties go by wire name.

The weights are measured in docs/design/tool-search.md.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import TYPE_CHECKING

from capd.core.lexical import Bm25, Ngrams, words
from capd.core.tools.tool_text import Tool, folded, spelled
from capd_protos.naming import Named, NameTable, near_names
from capd_protos.types import WireName

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

WORDS_WEIGHT = 0.15
NAME_WEIGHT = 0.05
LOWEST_COSINE = 0.2
"""A tool that shares no word with the question is a hit from this cosine on, as for `discover`."""
LOWEST_LIKENESS = 0.3
"""The same for the similarity of its name's n-grams."""

MOST_TOOLS = 20_000
"""More are left out and counted: 31 MB of vectors, and about as much for their words."""

NEAR = 3
_NEAR_LOOKED_AT = 20
_NO_TIER = 3
# No question contains this word: `words` never yields this character.
_PADDING = "\0"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Why a session may not use a tool that exists."""

    code: str
    """`denied`, `missing_secrets` or another word that names the rule."""
    reason: str
    """For a person or a model, in one clause."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One tool that fits."""

    tool: Tool
    score: float
    tier: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """A tool that fits but may not be used."""

    tool: Tool
    restriction: Restriction


@dataclass(frozen=True, slots=True)
class RankedTools:
    """The result of a ranking."""

    hits: tuple[Hit, ...]
    withheld: tuple[Withheld, ...]
    """The tools that would have been among the hits."""
    near: tuple[WireName, ...]
    """Names similar to the question, if there is no hit."""
    is_lexical: bool
    """Whether only words were compared, because there are no vectors."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The result of a selection."""

    tools: tuple[Tool, ...]
    withheld: tuple[Withheld, ...]
    beyond_cap: tuple[WireName, ...]
    unknown: dict[str, tuple[WireName, ...]]
    """Names that no known tool has, each with similar ones."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for each tool of an index, in its order."""

    scores: "Vectors"
    by_words: "Vectors"
    """BM25."""
    likeness: "Vectors"
    """Similarity of the name."""
    cosines: "Vectors | None"
    """None if only words were compared."""


class ToolIndex:
    """All known tools, and their words to search in; vectors may come later.

    The words are indexed with the first search, or by `prepare`.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        """Take `tools`, of which those after `MOST_TOOLS` are left out."""
        by_name = {tool.wire_name: tool for tool in tools}
        ordered = [by_name[name] for name in sorted(by_name)]
        self.tools = tuple(ordered[:MOST_TOOLS])
        self.left_out = len(ordered) - len(self.tools)
        self.servers = len({tool.server for tool in self.tools})
        self._vectors: Vectors | None = None
        self._rows: dict[WireName, int] = {t.wire_name: row for row, t in enumerate(self.tools)}
        self._bare: dict[str, list[int]] = {}
        self._folded: dict[str, list[int]] = {}
        for row, tool in enumerate(self.tools):
            self._bare.setdefault(tool.name, []).append(row)
            for name in {folded(tool.name), folded(tool.wire_name)}:
                self._folded.setdefault(name, []).append(row)

    def prepare(self) -> None:
        """Index the words, blocking for about a second per ten thousand tools."""
        _ = self._words, self._names

    @property
    def is_prepared(self) -> bool:
        """Whether a search finds the words indexed."""
        return not self.tools or {"_words", "_names"} <= vars(self).keys()

    @cached_property
    def _words(self) -> Bm25:
        return Bm25(_padded([words(tool.words) for tool in self.tools]))

    @cached_property
    def _names(self) -> Ngrams:
        return Ngrams([f"{spelled(t.server)} {spelled(t.name)}" for t in self.tools])

    @property
    def has_vectors(self) -> bool:
        """Whether the vector of a question can be used."""
        return self._vectors is not None

    def take_vectors(self, vectors: "Vectors") -> None:
        """Use `vectors` from now on: unit rows, one for each tool, in the order of `tools`."""
        if vectors.ndim != 2 or len(vectors) != len(self.tools):  # noqa: PLR2004 - a matrix
            raise ValueError(f"vectors of shape {vectors.shape} for {len(self.tools)} tools")
        self._vectors = vectors

    def ranked(
        self,
        asked: str,
        limit: int,
        vector: "Vectors | None" = None,
        barred: Mapping[WireName, Restriction] | None = None,
        *,
        required: Collection[str] = (),
        inside: Collection[WireName] | None = None,
    ) -> RankedTools:
        """Return at most `limit` tools for `asked`, best first.

        `vector` is the unit vector of `asked`; without it, or before the tools have theirs,
        words decide alone. Only tools whose text has every word of `required` (folded) are hits,
        and only those of `inside` where it is given.
        """
        barred = barred or {}
        evidence = self.evidence(asked, vector)
        scores = evidence.scores
        is_hit = (evidence.by_words > 0) | (evidence.likeness >= LOWEST_LIKENESS)
        if evidence.cosines is not None:
            is_hit |= evidence.cosines >= LOWEST_COSINE
        tiers = self._tiers(asked)
        hits: list[Hit] = []
        withheld: list[Withheld] = []
        for row in _best_rows(scores, is_hit, tiers):
            tool = self.tools[row]
            if inside is not None and tool.wire_name not in inside:
                continue
            if required and not _has_all(tool, required):
                continue
            restriction = barred.get(tool.wire_name)
            if restriction is not None:
                if len(withheld) < limit:
                    withheld.append(Withheld(tool, restriction))
                continue
            hits.append(Hit(tool, float(scores[row]), tiers.get(row, _NO_TIER)))
            if len(hits) == limit:
                break
        near = () if hits else self.near(asked, barred)
        return RankedTools(tuple(hits), tuple(withheld), near, evidence.cosines is None)

    def evidence(self, asked: str, vector: "Vectors | None" = None) -> Evidence:
        """Return the evidence for each tool; `vector` as for `ranked`."""
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without searches never pays

        by_words = self._words.scores(words(asked))
        likeness = self._names.similarities(asked)
        best = float(by_words.max(initial=0.0))
        scores = likeness * np.float32(NAME_WEIGHT)
        if best > 0:
            scores += by_words * np.float32(WORDS_WEIGHT / best)
        if vector is None or self._vectors is None:
            return Evidence(scores, by_words, likeness, None)
        cosines = self._vectors @ vector
        scores += cosines
        return Evidence(scores, by_words, likeness, cosines)

    def row(self, name: WireName) -> int | None:
        """Return the index in `tools` of a wire name."""
        return self._rows.get(name)

    @property
    def rarest(self) -> float:
        """BM25's value for a word that occurs once in a single tool's text of average length."""
        return log(1 + (len(self.tools) - 0.5) / 1.5) if self.tools else 1.0

    def selected(
        self, names: Sequence[str], cap: int, barred: Mapping[WireName, Restriction] | None = None
    ) -> Selected:
        """Return the tools of these names in order, each once, at most `cap`.

        A bare name is enough if only one tool has it.
        """
        barred = barred or {}
        unknown: dict[str, tuple[WireName, ...]] = {}
        wanted: dict[int, Tool] = {}
        for name in names:
            row = self._row(name)
            if row is None:
                unknown[name] = self.near(name, barred)
            else:
                wanted[row] = self.tools[row]
        tools = wanted.values()
        withheld = [Withheld(t, barred[t.wire_name]) for t in tools if t.wire_name in barred]
        usable = [tool for tool in tools if tool.wire_name not in barred]
        beyond = tuple(tool.wire_name for tool in usable[cap:])
        return Selected(tuple(usable[:cap]), tuple(withheld), beyond, unknown)

    def _row(self, name: str) -> int | None:
        row = self._rows.get(WireName(name))
        if row is not None:
            return row
        bare = self._bare.get(name, [])
        if bare:
            return bare[0] if len(bare) == 1 else None
        meant = self._book.find(name, is_call=True)
        if isinstance(meant, Named):
            return self._rows[WireName(meant.name)]
        bare_name = self._bare_book.find(name, is_call=True)
        rows = self._bare[bare_name.name] if isinstance(bare_name, Named) else []
        return rows[0] if len(rows) == 1 else None

    @cached_property
    def _book(self) -> NameTable:
        return NameTable(self._rows)

    @cached_property
    def _bare_book(self) -> NameTable:
        return NameTable(self._bare)

    def named(self, name: str) -> WireName | None:
        """Return the only tool with this own name or wire name, in any spelling."""
        row = self._row(name)
        return None if row is None else self.tools[row].wire_name

    def _tiers(self, asked: str) -> dict[int, int]:
        tiers = dict.fromkeys(self._folded.get(folded(asked), ()), 2)
        tiers.update(dict.fromkeys(self._bare.get(asked, ()), 1))
        if asked in self._rows:
            tiers[self._rows[WireName(asked)]] = 0
        return tiers

    def near(self, asked: str, barred: Mapping[WireName, Restriction]) -> tuple[WireName, ...]:
        """Return names that `asked` may have meant; restricted ones are reported elsewhere."""
        import numpy as np  # noqa: PLC0415 - as above

        same = [self.tools[row].wire_name for row in self._bare.get(asked, ())]
        bare = [name for name in same if name not in barred]
        likeness = self._names.similarities(spelled(asked))
        # difflib takes half a second for ten thousand names, so n-grams preselect them.
        rows = np.argsort(-likeness, kind="stable")[:_NEAR_LOOKED_AT]
        alike = [self.tools[row].wire_name for row in rows if likeness[row] > 0]
        known = [name for name in dict.fromkeys(alike) if name not in barred]
        close = near_names(asked, known, NEAR)
        return tuple(WireName(name) for name in dict.fromkeys([*bare, *close, *known]))[:NEAR]


def _has_all(tool: Tool, required: Collection[str]) -> bool:
    text = tool.words.casefold()
    return all(word in text for word in required)


def _padded(documents: list[list[str]]) -> list[list[str]]:
    """Return the documents, none of them shorter than their mean.

    BM25 gives a word of a short document more weight. A tool that has a name and no description
    would outrank one that has the same word and says what it does.
    """
    if not documents:
        return documents
    mean = round(sum(map(len, documents)) / len(documents))
    return [[*document, *[_PADDING] * (mean - len(document))] for document in documents]


def _best_rows(
    scores: "Vectors", is_hit: "npt.NDArray[np.bool_]", tiers: Mapping[int, int]
) -> Iterator[int]:
    """Yield the rows of hits: by tier, then by falling score, then in their order."""
    import numpy as np  # noqa: PLC0415 - as above

    yield from sorted(tiers, key=lambda row: (tiers[row], -float(scores[row]), row))
    candidates = np.flatnonzero(is_hit)
    for row in candidates[np.argsort(-scores[candidates], kind="stable")].tolist():
        if row not in tiers:
            yield row
