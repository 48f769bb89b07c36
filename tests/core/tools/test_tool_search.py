"""Which tools a query finds, and in which order."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.lexical import words
from capd.core.tools.tool_search import (
    MOST_TOOLS,
    Hit,
    RankedTools,
    Restriction,
    Selected,
    ToolIndex,
    Withheld,
)
from capd.core.tools.tool_text import Tool, folded
from capd_protos.types import ToolName, WireName

DENIED = Restriction("denied", "the policy of this project denies it")
VOCABULARY = ("read", "file", "write", "issue", "search", "weather", "create", "send", "mail")

names = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from(
        ["_".join(parts), "-".join(parts), "".join(p.title() for p in parts), parts[0].title()]
    )
)
sentences = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)


def made(server: str, name: str, description: str = "", **more: tuple[str, ...]) -> Tool:
    return Tool(WireName(f"{server}__{name}"), ToolName(name), server, "", description, **more)


tools = st.lists(
    st.builds(made, st.sampled_from(["fs", "git", "mail"]), names, sentences),
    max_size=12,
    unique_by=lambda tool: tool.wire_name,
)
questions = sentences | names | names.map(lambda name: f"fs__{name}")

GIT = made("github", "create_issue", "Open an issue in a repository.", arguments=("title", "body"))
MAIL = made("mail", "send", "Send a message to somebody.", capabilities=("correspondence",))
FILES = made("fs", "read_file", "Read the contents of a file from the disk.")
SEARCH = made("fs", "search", "Find files whose contents match a pattern.")
INDEX = ToolIndex([GIT, MAIL, FILES, SEARCH])


def found(asked: str, index: ToolIndex = INDEX, limit: int = 5) -> list[str]:
    return [hit.tool.wire_name for hit in index.ranked(asked, limit).hits]


def vectors(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return unit vectors that are similar for texts with common words."""
    rows = np.full((len(texts), 16), 1e-3, np.float32)
    for row, text in enumerate(texts):
        for word in words(text):
            rows[row, hashlib.sha256(word.encode()).digest()[0] % 16] += 1
    unit: npt.NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        pytest.param("open issues", GIT, id="words of the description, stemmed"),
        pytest.param("repository body", GIT, id="an argument's name"),
        pytest.param("correspondence", MAIL, id="a capability"),
        pytest.param("something on github", GIT, id="the server"),
        pytest.param("reading files", FILES, id="words of the name"),
    ],
)
def test_a_tool_is_found_by_every_part_of_it(asked: str, first: Tool) -> None:
    got = found(asked)

    assert got[0] == first.wire_name


def test_the_names_of_a_tool_come_before_evidence_in_three_tiers() -> None:
    wire, bare, alike, other = (
        made("a", "find"),
        Tool(WireName("x1"), ToolName("a__find"), "b"),
        Tool(WireName("x2"), ToolName("A-find"), "c"),
        made("d", "other", "a__find a find find find"),
    )

    index = ToolIndex([other, alike, bare, wire])
    # The better the name, the worse the evidence.
    cosines = {wire: 0.1, bare: 0.2, alike: 0.3, other: 0.9}
    index.take_vectors(np.array([[cosines[tool]] for tool in index.tools], np.float32))

    got = index.ranked("a__find", 4, np.ones(1, np.float32)).hits

    assert [(hit.tool, hit.tier) for hit in got] == [(wire, 0), (bare, 1), (alike, 2), (other, 3)]


@given(tools, questions, st.integers(1, 25))
def test_the_order_does_not_depend_on_the_order_of_the_tools(
    some: list[Tool], asked: str, limit: int
) -> None:
    one, other = ToolIndex(some), ToolIndex(reversed(some))

    got = one.ranked(asked, limit), other.ranked(asked, limit)

    assert got[0] == got[1]


@given(tools, questions, st.booleans())
def test_exact_names_come_first_and_the_rest_by_falling_score(
    some: list[Tool], asked: str, has_vectors: bool
) -> None:
    index = ToolIndex(some)
    if has_vectors:
        index.take_vectors(vectors([tool.text for tool in index.tools]))

    hits = index.ranked(asked, 25, vectors([asked])[0] if has_vectors else None).hits

    def tier(tool: Tool) -> int:
        if tool.wire_name == asked:
            return 0
        if tool.name == asked:
            return 1
        return 2 if folded(asked) in {folded(tool.name), folded(tool.wire_name)} else 3

    exact = {tool.wire_name for tool in some if tier(tool) < 3}
    assert [hit.tier for hit in hits] == [tier(hit.tool) for hit in hits]
    assert exact <= {hit.tool.wire_name for hit in hits}
    assert list(hits) == sorted(hits, key=lambda h: (h.tier, -h.score, h.tool.wire_name))


@given(tools, questions, st.integers(1, 25), st.data())
def test_no_more_than_the_limit_each_once_and_nothing_that_is_barred(
    some: list[Tool], asked: str, limit: int, data: st.DataObject
) -> None:
    every = [tool.wire_name for tool in some]
    barred = data.draw(st.sets(st.sampled_from(every))) if every else set()
    index = ToolIndex(some)

    got = index.ranked(asked, limit, None, dict.fromkeys(barred, DENIED))

    hits = [hit.tool.wire_name for hit in got.hits]
    withheld = [each.tool.wire_name for each in got.withheld]
    unbarred = [hit.tool.wire_name for hit in index.ranked(asked, len(some) + 1).hits]
    assert hits == [name for name in unbarred if name not in barred][:limit]
    assert len(withheld) <= limit
    assert set(withheld) <= barred
    assert not barred & set(got.near)


@given(tools, st.data(), st.integers(1, 4))
def test_a_selection_keeps_its_order_has_each_tool_once_and_stays_within_the_cap(
    some: list[Tool], data: st.DataObject, cap: int
) -> None:
    known = [each for tool in some for each in (str(tool.wire_name), str(tool.name))]
    wanted = data.draw(st.lists(st.sampled_from([*known, "nobody"]), max_size=12))
    index = ToolIndex(some)
    by_wire = {str(tool.wire_name): tool for tool in some}
    expected: list[Tool] = []
    unknown: list[str] = []
    for name in dict.fromkeys(wanted):
        bare = [tool for tool in some if tool.name == name]
        meant = by_wire.get(name) or (bare[0] if len(bare) == 1 else None)
        if meant is None:
            unknown.append(name)
        elif meant not in expected:
            expected.append(meant)

    got = index.selected(wanted, cap)

    assert (list(got.tools), list(got.unknown)) == (expected[:cap], unknown)
    assert list(got.beyond_cap) == [tool.wire_name for tool in expected[cap:]]


@given(names, sentences.filter(bool), tools)
def test_what_says_that_it_fits_is_before_what_is_only_called_so(
    name: str, asked: str, others: list[Tool]
) -> None:
    honest, hostile = made("zz", name, asked), made("aa", name, "")

    got = found(asked, ToolIndex([honest, hostile, *others]), 25)

    assert next(each for each in got if each in {"aa__" + name, "zz__" + name}) == "zz__" + name


def test_a_name_counts_for_no_more_where_a_tool_says_nothing_else() -> None:
    hostile = made("evil", "Read")
    honest = made("fs", "read_file", "Read a file, whole or in part, as text or as its bytes.")

    got = found("read it please", ToolIndex([hostile, honest, MAIL, GIT, SEARCH]))

    assert got == [honest.wire_name, hostile.wire_name]


def test_a_name_that_is_a_builtin_elsewhere_earns_nothing() -> None:
    hostile = [made("evil", name, "Collects usage figures.") for name in ("Read", "Grep", "Bash")]

    got = found("read the contents of a file", ToolIndex([*hostile, FILES, SEARCH]))

    assert got[0] == FILES.wire_name


def test_vectors_find_what_shares_no_word() -> None:
    index = ToolIndex([FILES, MAIL])
    rows = np.zeros((2, 4), np.float32)
    rows[0, 0] = rows[1, 1] = 1
    index.take_vectors(rows)

    got = index.ranked("poczta", 5, np.array([0.2, 0.9, 0, 0], np.float32))

    assert [hit.tool for hit in got.hits] == [MAIL, FILES]
    assert not got.is_lexical


def test_before_vectors_come_words_decide_and_it_is_said() -> None:
    got = INDEX.ranked("poczta", 5, np.ones(4, np.float32))

    assert got == RankedTools((), (), (), is_lexical=True)


def test_vectors_of_other_tools_are_refused() -> None:
    with pytest.raises(ValueError, match="for 4 tools"):
        INDEX.take_vectors(np.zeros((3, 4), np.float32))


def test_a_misspelled_name_finds_its_tool_by_its_letters() -> None:
    got = found("githb create_isue")

    assert got[0] == GIT.wire_name


def test_what_fits_and_is_barred_is_told_apart() -> None:
    got = INDEX.ranked("create_issue", 5, None, {GIT.wire_name: DENIED})

    assert got.hits == ()
    assert got.withheld == (Withheld(GIT, DENIED),)


def test_a_selection_tells_what_it_could_not_take() -> None:
    barred = {MAIL.wire_name: DENIED}

    got = INDEX.selected(["read_file", "mail__send", "fs__search", "github__issues"], 1, barred)

    assert got == Selected(
        (FILES,),
        (Withheld(MAIL, DENIED),),
        (SEARCH.wire_name,),
        {"github__issues": (GIT.wire_name,)},
    )


def test_a_bare_name_of_two_tools_selects_none_and_both_are_near() -> None:
    index = ToolIndex([made("a", "find"), made("b", "find")])

    got = index.selected(["find"], 5)

    assert got == Selected((), (), (), {"find": (WireName("a__find"), WireName("b__find"))})


def test_tools_beyond_the_bound_are_left_out_and_counted() -> None:
    some = [made("s", f"t{number:05}") for number in range(MOST_TOOLS + 2)]

    index = ToolIndex(some)

    assert (len(index.tools), index.left_out) == (MOST_TOOLS, 2)


def test_an_empty_index_finds_nothing() -> None:
    got = ToolIndex().ranked("anything", 5)

    assert got == RankedTools((), (), (), is_lexical=True)


def test_a_hit_has_its_score_from_words_and_letters() -> None:
    got = ToolIndex([made("", "Pay", "Pay a bill")]).ranked("pay", 1)

    (hit,) = got.hits
    assert hit == Hit(hit.tool, hit.score, 2)
    assert hit.score == pytest.approx(0.2)


def test_a_required_word_must_be_in_the_text_of_each_hit() -> None:
    hits = INDEX.ranked("send read find", 5, required=("mail",)).hits

    assert [hit.tool for hit in hits] == [MAIL]


def test_only_tools_of_the_chosen_capabilities_are_hits() -> None:
    hits = INDEX.ranked("contents of a file", 5, inside={FILES.wire_name, MAIL.wire_name}).hits

    assert [hit.tool for hit in hits] == [FILES]


class Nearest:
    """Compares the nearest tool, and the given ones."""

    is_exact = False

    def __init__(self, rows: npt.NDArray[np.float32]) -> None:
        self._rows = rows

    @property
    def rows(self) -> int:
        return len(self._rows)

    def cosines(
        self, vector: npt.NDArray[np.float32], beside: Sequence[int]
    ) -> npt.NDArray[np.float32]:
        found = self._rows @ vector
        compared = np.zeros(len(found), bool)
        compared[[int(found.argmax()), *beside]] = True
        return np.where(compared, found, np.float32(0))


def test_where_few_tools_are_compared_those_that_fit_by_words_and_the_wanted_ones_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("capd.core.tools.tool_search.LEXICAL_CANDIDATES", 1)
    index = ToolIndex([GIT, MAIL, FILES, SEARCH])
    rows = vectors([tool.text for tool in index.tools])
    index.take_search(Nearest(rows))
    exact = ToolIndex(index.tools)
    exact.take_vectors(rows)
    by_meaning, by_words = vectors(["send a message"])[0], "create issue"

    got = index.evidence(by_words, by_meaning).cosines
    with_one_more = index.evidence(by_words, by_meaning, [1]).cosines

    right = exact.evidence(by_words, by_meaning).cosines
    assert right is not None
    assert got is not None
    assert with_one_more is not None
    assert [tool.name for tool in index.tools] == ["read_file", "search", "create_issue", "send"]
    # The nearest by meaning, and the best by words.
    assert got.tolist() == [0, 0, right[2], right[3]]
    assert with_one_more.tolist() == [0, *right[1:]]


def test_tools_of_a_capability_are_compared_however_far_they_are() -> None:
    index = ToolIndex([GIT, MAIL, FILES, SEARCH])
    index.take_search(Nearest(vectors([tool.text for tool in index.tools])))

    got = index.ranked("q", 4, vectors(["send"])[0], inside={SEARCH.wire_name})

    assert [hit.score > 0 for hit in got.hits] == [True]


def test_a_search_of_another_number_of_tools_is_refused() -> None:
    with pytest.raises(ValueError, match="3 rows for 4 tools"):
        ToolIndex([GIT, MAIL, FILES, SEARCH]).take_search(Nearest(vectors(["a", "b", "c"])))


def test_an_index_can_be_made_for_more_tools() -> None:
    some = [made("s", f"t{number}") for number in range(5)]

    assert [ToolIndex(some, most).left_out for most in (3, 5, 9)] == [2, 0, 0]
