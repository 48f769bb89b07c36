"""Ranks tools for a question: exact names first, then words and vectors as one score.

A tool's wire name is the one that clients know, `<server>__<tool>`. Its bare name is the one that
its server gives it.

    tier      0 the whole wire name   1 the bare name   2 equal after folding   3 everything else
    score     cosine + 0.15 x BM25 / best BM25 + 0.05 x name n-grams
              without vectors the two lexical parts alone, in the same proportion

Lower tiers come first. A tool is in one of the tiers 0 to 2 only if the whole question is its name.
Otherwise words of a name count like words of a description. A tool that the session may not use is
never a hit; it is reported separately, with the reason. Equal scores are ordered by wire name, so
that the same tools, question and vectors always give the same order.

The weights are measured in docs/design/tool-search.md.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Literal

from capd.core.lexical import Bm25, Ngrams, words
from capd.core.tools.tool_text import Tool, folded, spelled
from capd.core.tools.vector_search import ExactSearch, VectorSearch
from capd_protos.naming import Named, NameTable, near_names
from capd_protos.types import WireName

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]

WORDS_WEIGHT = 0.15
NAME_WEIGHT = 0.05
LOWEST_COSINE = 0.2
"""A tool that shares no word with the question is a hit if its cosine is at least this high."""
LOWEST_LIKENESS = 0.3
"""A tool is also a hit if the n-grams of its name and of the question are at least this similar."""

MOST_TOOLS = 20_000
"""How many tools an index has room for, unless it is created with another limit. The others are
left out, and counted. The vectors of this many tools take 31 MB, and their words about as much."""

LEXICAL_CANDIDATES = 512
"""How many of the tools that fit a question best by words are compared by meaning in any case. This
matters only where not every tool is compared (`vector_search`)."""

NEAR = 3
_NEAR_LOOKED_AT = 20
_NO_TIER = 3
# No question contains this word: `words` never yields this character.
_PADDING = "\0"


@dataclass(frozen=True, slots=True)
class Restriction:
    """Why a session may not use a tool that exists."""

    code: Literal["denied", "missing_secrets", "outside_domain"]
    reason: str
    """Why the tool may not be used: a clause for a person or a model."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A tool that fits a question, with its rank.

    The rank is a tier and a score. A tool in a lower tier comes first, whatever the scores are.
    """

    tool: Tool
    score: float
    tier: int


@dataclass(frozen=True, slots=True)
class Withheld:
    """A tool that fits a question, but that the session may not use."""

    tool: Tool
    restriction: Restriction


@dataclass(frozen=True, slots=True)
class RankedTools:
    """The tools that fit a question, and those that would if the session might use them."""

    hits: tuple[Hit, ...]
    withheld: tuple[Withheld, ...]
    """Tools that would be among the hits if the session might use them."""
    near: tuple[WireName, ...]
    """Names similar to the question, if there is no hit."""
    is_lexical: bool
    """Whether only words were compared, because there are no vectors."""


@dataclass(frozen=True, slots=True)
class Selected:
    """The tools that a question names, and the names that gave none."""

    tools: tuple[Tool, ...]
    withheld: tuple[Withheld, ...]
    beyond_cap: tuple[WireName, ...]
    """Tools that were named and are left out because there are more than allowed."""
    unknown: dict[str, tuple[WireName, ...]]
    """Names that no known tool has, each with similar ones."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How well each tool fits a question: one number of each kind for each tool of an index."""

    scores: "Vectors"
    by_words: "Vectors"
    """The BM25 sums of shared words."""
    likeness: "Vectors"
    """The similarity of the name's n-grams to those of the question."""
    cosines: "Vectors | None"
    """The cosines with the question; None if only words were compared."""


class ToolIndex:
    """The known tools, up to a limit, and their words to search in.

    The words are indexed with the first search, or by `prepare`. Vectors, for the search by
    meaning, may be added later.
    """

    def __init__(self, tools: Iterable[Tool] = (), most: int = MOST_TOOLS) -> None:
        """Create the index of `tools`. Those after the first `most` are left out."""
        by_name = {tool.wire_name: tool for tool in tools}
        ordered = [by_name[name] for name in sorted(by_name)]
        self.tools = tuple(ordered[:most])
        self.left_out = len(ordered) - len(self.tools)
        self.servers = len({tool.server for tool in self.tools})
        self._meaning: VectorSearch | None = None
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
        """Whether the words are indexed, so that a search does not have to wait."""
        return not self.tools or {"_words", "_names"} <= vars(self).keys()

    @cached_property
    def _words(self) -> Bm25:
        return Bm25(_padded([words(tool.words) for tool in self.tools]))

    @cached_property
    def _names(self) -> Ngrams:
        return Ngrams([f"{spelled(t.server)} {spelled(t.name)}" for t in self.tools])

    @property
    def has_vectors(self) -> bool:
        """Whether the tools have vectors, so that a question can be compared by meaning."""
        return self._meaning is not None

    def take_vectors(self, vectors: "Vectors") -> None:
        """Add the unit vectors of the tools, one row for each, in the order of `tools`.

        Raises:
            ValueError: there is not one row for each tool.
        """
        self.take_search(ExactSearch(vectors))

    def take_search(self, search: VectorSearch) -> None:
        """Compare questions by meaning with `search`, whose rows are in the order of `tools`.

        Raises:
            ValueError: there is not one row for each tool.
        """
        if search.rows != len(self.tools):
            raise ValueError(f"vectors of {search.rows} rows for {len(self.tools)} tools")
        self._meaning = search

    def ranked(
        self,
        asked: str,
        limit: int,
        vector: "Vectors | None" = None,
        restricted: Mapping[WireName, Restriction] | None = None,
        *,
        required: Collection[str] = (),
        inside: Collection[WireName] | None = None,
    ) -> RankedTools:
        """Return at most `limit` tools for the question `asked`, best first.

        `vector` is the unit vector of `asked`; without it, or before the tools have vectors, words
        decide alone. `restricted` are the tools that the session may not use. A hit's text contains
        every word of `required`, which are case-folded. If `inside` is given, only its tools are
        searched.
        """
        restricted = restricted or {}
        evidence = self.evidence(asked, vector, self._rows_of(inside or ()))
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
            restriction = restricted.get(tool.wire_name)
            if restriction is not None:
                if len(withheld) < limit:
                    withheld.append(Withheld(tool, restriction))
                continue
            hits.append(Hit(tool, float(scores[row]), tiers.get(row, _NO_TIER)))
            if len(hits) == limit:
                break
        near = () if hits else self.near(asked, restricted)
        return RankedTools(tuple(hits), tuple(withheld), near, evidence.cosines is None)

    def evidence(
        self, asked: str, vector: "Vectors | None" = None, beside: Sequence[int] = ()
    ) -> Evidence:
        """Return how well each tool fits the question `asked`, whose unit vector is `vector`.

        With a graph over the vectors, not every tool is compared by meaning, but only those in the
        rows `beside`, the nearest ones, and those that fit best by words.
        """
        import numpy as np  # noqa: PLC0415 - 60 ms that a daemon without searches never pays

        by_words = self._words.scores(words(asked))
        likeness = self._names.similarities(asked)
        best = float(by_words.max(initial=0.0))
        scores = likeness * np.float32(NAME_WEIGHT)
        if best > 0:
            scores += by_words * np.float32(WORDS_WEIGHT / best)
        if vector is None or self._meaning is None:
            return Evidence(scores, by_words, likeness, None)
        if not self._meaning.is_exact and len(scores) > LEXICAL_CANDIDATES:
            best_rows = np.argpartition(-scores, LEXICAL_CANDIDATES)[:LEXICAL_CANDIDATES]
            beside = [*beside, *best_rows.tolist()]
        cosines = self._meaning.cosines(vector, beside)
        scores += cosines
        return Evidence(scores, by_words, likeness, cosines)

    def row(self, name: WireName) -> int | None:
        """Return the index in `tools` of the tool with this wire name; None if there is none."""
        return self._rows.get(name)

    def _rows_of(self, names: Iterable[WireName]) -> list[int]:
        return [row for name in names if (row := self._rows.get(name)) is not None]

    @property
    def rarest(self) -> float:
        """The BM25 value, in a text of mean length, of a word that only one tool contains."""
        return log(1 + (len(self.tools) - 0.5) / 1.5) if self.tools else 1.0

    def selected(
        self,
        names: Sequence[str],
        cap: int,
        restricted: Mapping[WireName, Restriction] | None = None,
    ) -> Selected:
        """Return the tools with these names in order, each once, at most `cap`.

        A name is a tool's name for clients, in any spelling, or its own name at the server if only
        one tool has that. `restricted` are the tools that the session may not use.
        """
        restricted = restricted or {}
        unknown: dict[str, tuple[WireName, ...]] = {}
        wanted: dict[int, Tool] = {}
        for name in names:
            row = self._row(name)
            if row is None:
                unknown[name] = self.near(name, restricted)
            else:
                wanted[row] = self.tools[row]
        tools = wanted.values()
        withheld = [
            Withheld(t, restricted[t.wire_name]) for t in tools if t.wire_name in restricted
        ]
        usable = [tool for tool in tools if tool.wire_name not in restricted]
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
        """Return the name for clients of the tool called `name`; None for no or several such tools.

        `name` is its name for clients or at its server. Spellings that differ in case, dashes or
        underscores count as the same.
        """
        row = self._row(name)
        return None if row is None else self.tools[row].wire_name

    def _tiers(self, asked: str) -> dict[int, int]:
        tiers = dict.fromkeys(self._folded.get(folded(asked), ()), 2)
        tiers.update(dict.fromkeys(self._bare.get(asked, ()), 1))
        if asked in self._rows:
            tiers[self._rows[WireName(asked)]] = 0
        return tiers

    def near(self, asked: str, restricted: Mapping[WireName, Restriction]) -> tuple[WireName, ...]:
        """Return up to three names of tools that `asked` may mean; restricted ones are left out."""
        import numpy as np  # noqa: PLC0415 - as above

        same = [self.tools[row].wire_name for row in self._bare.get(asked, ())]
        bare = [name for name in same if name not in restricted]
        likeness = self._names.similarities(spelled(asked))
        # difflib takes half a second for ten thousand names, so n-grams preselect them.
        rows = np.argsort(-likeness, kind="stable")[:_NEAR_LOOKED_AT]
        alike = [self.tools[row].wire_name for row in rows if likeness[row] > 0]
        known = [name for name in dict.fromkeys(alike) if name not in restricted]
        close = near_names(asked, known, NEAR)
        return tuple(WireName(name) for name in dict.fromkeys([*bare, *close, *known]))[:NEAR]


def _has_all(tool: Tool, required: Collection[str]) -> bool:
    text = tool.words.casefold()
    return all(word in text for word in required)


def _padded(documents: list[list[str]]) -> list[list[str]]:
    """Return the documents, short ones filled up with a padding word to their mean length.

    BM25 gives a word in a short document more weight. Without the padding, a tool without a
    description would rank above one that has the same word and a description.
    """
    if not documents:
        return documents
    mean = round(sum(map(len, documents)) / len(documents))
    return [[*document, *[_PADDING] * (mean - len(document))] for document in documents]


def _best_rows(
    scores: "Vectors", is_hit: "npt.NDArray[np.bool_]", tiers: Mapping[int, int]
) -> Iterator[int]:
    """Yield the indexes of the tools that are hits, best first.

    They are ordered by tier, by falling score, and by index.
    """
    import numpy as np  # noqa: PLC0415 - as above

    yield from sorted(tiers, key=lambda row: (tiers[row], -float(scores[row]), row))
    candidates = np.flatnonzero(is_hit)
    for row in candidates[np.argsort(-scores[candidates], kind="stable")].tolist():
        if row not in tiers:
            yield row
