"""Which single tools fit a message, by capd's scorer and by the published one."""

import numpy as np
import pytest

from capd.core.tools.curation import (
    Field,
    curated,
    curated_by_keywords,
    overlap,
    published_order,
    published_score,
    ranked_within,
    terms,
)
from capd.core.tools.tool_search import ToolIndex
from capd.core.tools.tool_text import Tool
from capd_protos.types import ToolName, WireName

ASKED = "render the quarterly invoice as a pdf document"


def tool(name: str, description: str = "", server: str = "s") -> Tool:
    return Tool(WireName(f"{server}__{name}"), ToolName(name), server, description=description)


INVOICE = tool("render_invoice", "Render an invoice as a PDF document.")
TWIN = tool("render_invoice", "Render an invoice as a PDF document.", "t")
OTHERS = [
    tool("play_song", "Play a song from a playlist."),
    tool("book_flight", "Book a flight between two airports."),
    tool("list_branches", "List the branches of a repository."),
    tool("water_plants", "Switch the garden's sprinklers on."),
]


def indexed(*tools: Tool, near: tuple[Tool, ...] = ()) -> tuple[ToolIndex, "np.ndarray"]:
    """Return an index, and a question's vector that is near to some of its tools alone."""
    index = ToolIndex(tools)
    rows = np.zeros((len(tools), 2), np.float32)
    for at, each in enumerate(index.tools):
        rows[at] = (0.8, 0.6) if each in near else (0.0, 1.0)
    index.take_vectors(rows)
    return index, np.array([1.0, 0.0], np.float32)


def names(found: list[object]) -> list[str]:
    return [each.tool.wire_name for each in found]  # type: ignore[attr-defined]  # Curated


def clear(index: ToolIndex, asked: str, vector: "np.ndarray | None", **field: object) -> list[str]:
    found = curated(index, asked, 15, Field(**field), vector)  # type: ignore[arg-type]  # as named
    return [each.tool.wire_name for each in found if each.is_clear]


# The measured scorer


def test_what_shares_words_and_meaning_with_the_message_is_clear_and_comes_first() -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))

    found = curated(index, ASKED, 3, Field(), vector)

    assert len(found) == 3
    assert names(list(found))[0] == "s__render_invoice"
    assert [each.is_clear for each in found] == [True, False, False]


@pytest.mark.parametrize(
    "said", ["thanks, that works", "ok, please go on", "render it", "what do you think of this?"]
)
def test_a_message_that_asks_for_nothing_makes_nothing_clear(said: str) -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))

    assert clear(index, said, vector) == []


def test_words_without_the_meaning_are_not_clear() -> None:
    index, vector = indexed(INVOICE, *OTHERS)

    assert clear(index, ASKED, vector) == []


def test_meaning_without_the_words_is_not_clear() -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))

    assert clear(index, "send the customer what they owe us", vector) == []


def test_without_vectors_more_words_have_to_be_shared() -> None:
    index = ToolIndex([INVOICE, *OTHERS])

    assert clear(index, "render a song", None) == []
    assert clear(index, "render the invoice as a pdf document", None) == ["s__render_invoice"]


def test_uses_decide_between_two_that_fit_as_well() -> None:
    index, vector = indexed(INVOICE, TWIN, *OTHERS, near=(INVOICE, TWIN))
    used = {WireName("t__render_invoice"): 1}

    before = clear(index, ASKED, vector)
    after = clear(index, ASKED, vector, uses=used)

    assert before == ["s__render_invoice", "t__render_invoice"]
    assert after == ["t__render_invoice", "s__render_invoice"]


def test_no_number_of_uses_makes_a_tool_clear() -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))
    used = {each.wire_name: 1_000_000 for each in OTHERS}

    assert clear(index, ASKED, vector, uses=used) == ["s__render_invoice"]
    assert clear(index, "thanks, that works", vector, uses=used) == []


def test_pins_come_first_in_the_users_order_and_count_among_the_best() -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))
    pins = [WireName("s__water_plants"), WireName("s__book_flight")]

    found = curated(index, ASKED, 3, Field(pins=pins), vector)

    assert names(list(found)) == ["s__water_plants", "s__book_flight", "s__render_invoice"]
    assert [each.is_pinned for each in found] == [True, True, False]


@pytest.mark.parametrize("k", [0, 1, 2])
def test_there_are_never_more_than_k_pins_included(k: int) -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))
    pins = [each.wire_name for each in OTHERS]

    assert len(curated(index, ASKED, k, Field(pins=pins), vector)) == k


def test_a_tool_gains_nothing_by_a_well_known_name() -> None:
    impostors = [tool(name, "Does what it does.") for name in ("Read", "Grep", "Bash", "Edit")]
    index, vector = indexed(INVOICE, *impostors, near=(INVOICE,))

    hybrid = curated(index, ASKED, 1, Field(), vector)
    keyword = curated_by_keywords([*impostors, INVOICE], ASKED, 1, Field())

    assert names(list(hybrid)) == names(list(keyword)) == ["s__render_invoice"]


def test_what_is_left_out_is_not_there_pinned_or_not() -> None:
    index, vector = indexed(INVOICE, *OTHERS, near=(INVOICE,))
    name = INVOICE.wire_name

    found = curated(index, ASKED, 15, Field({name}, [name], {name: 9}), vector)

    assert name not in names(list(found))


# The published scorer


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", []),
        ("   \n\t ", []),
        ("Read the FILES, please", ["read", "files,", "please"]),
        ("list list files", ["list", "list", "files"]),
        ("a to the", []),
        ("查询 数据", ["查询", "数据"]),
        ("é éé ééé", ["éé", "ééé"]),
    ],
)
def test_a_term_is_a_lower_case_word_of_more_than_three_bytes(
    message: str, expected: list[str]
) -> None:
    assert terms(message) == expected


@pytest.mark.parametrize(
    ("message", "description", "expected"),
    [
        ("read files", "Read files from disk", 2),
        ("read files, now", "Read files from disk", 1),
        ("list list list", "Listing of a folder", 3),
        ("file", "A profile", 1),
        ("查询", "查询数据库", 1),
        ("anything", "", 0),
    ],
)
def test_the_overlap_counts_terms_that_are_somewhere_in_the_description(
    message: str, description: str, expected: int
) -> None:
    assert overlap(terms(message), description) == expected


@pytest.mark.parametrize(
    ("shared", "uses", "is_pinned", "expected"),
    [(0, 0, False, 0.0), (3, 0, False, 30.0), (1, 5, False, 12.5), (0, 1, True, 100.5)],
)
def test_the_published_score(shared: int, uses: int, is_pinned: bool, expected: float) -> None:
    assert published_score(shared, uses, is_pinned=is_pinned) == expected


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([1.0, 3.0, 2.0], 3, [0, 1, 2]),
        ([1.0, 3.0, 2.0], 15, [0, 1, 2]),
        ([1.0, 3.0, 2.0], 2, [1, 2]),
        ([0.0, 0.0, 0.0], 2, [0, 1]),
        ([1.0, 3.0, 3.0], 1, [1]),
        ([1.0, 3.0], 0, []),
        ([], 0, []),
    ],
)
def test_k_or_fewer_stay_as_they_are_and_ties_keep_the_catalogs_order(
    scores: list[float], k: int, expected: list[int]
) -> None:
    assert published_order(scores, k) == expected


def test_an_empty_message_is_ordered_by_uses_and_pins_alone() -> None:
    field = Field(pins=[WireName("s__water_plants")], uses={WireName("s__book_flight"): 2})

    found = curated_by_keywords([INVOICE, *OTHERS], "", 3, field)

    assert names(list(found)) == ["s__water_plants", "s__book_flight", "s__render_invoice"]
    assert [each.is_clear for each in found] == [False, False, False]


def test_the_name_is_not_searched_by_keywords() -> None:
    found = curated_by_keywords(
        [tool("render_invoice"), *OTHERS], "render_invoice song", 1, Field()
    )

    assert names(list(found)) == ["s__play_song"]


def test_fifty_tools_become_fifteen() -> None:
    many = [tool(f"tool_{number}", f"Thing number{number:03}.") for number in range(50)]

    found = curated_by_keywords(many, "please number044 number007", 15, Field())

    assert names(list(found))[:3] == ["s__tool_7", "s__tool_44", "s__tool_0"]
    assert len(found) == 15


# Inside one capability


def inside(index: ToolIndex, asked: str, most: int = 3, **uses: int) -> list[str]:
    names = [tool.wire_name for tool in index.tools if tool.server == "s"]
    counted = {WireName(f"s__{name}"): count for name, count in uses.items()}
    found = ranked_within(index, asked, names, most=most, uses=counted)
    return [each.name for each in found.tools]


def test_inside_a_capability_the_message_decides_which_tools_come_first() -> None:
    index = ToolIndex([INVOICE, TWIN, *OTHERS])

    assert inside(index, "list the branches, then render the invoice", 2) == [
        "list_branches",
        "render_invoice",
    ]


def test_inside_a_capability_a_message_that_fits_no_tool_brings_the_two_most_used() -> None:
    index = ToolIndex([INVOICE, *OTHERS])

    found = inside(index, "xyzzy", water_plants=3, book_flight=5, play_song=1)

    assert found == ["book_flight", "water_plants"]


def test_tools_outside_of_the_capability_are_not_ranked_with_it() -> None:
    index = ToolIndex([TWIN, *OTHERS])

    assert "render_invoice" not in inside(index, ASKED)


def test_inside_a_small_capability_every_tool_is_given_where_the_message_fits_none() -> None:
    index = ToolIndex([INVOICE, *OTHERS])

    assert len(inside(index, "xyzzy", len(OTHERS) + 1)) == len(OTHERS) + 1


@pytest.mark.parametrize(
    ("asked", "is_spoken_of"),
    [(ASKED, True), ("and now the trains", False), ("thanks, that is all", False)],
)
def test_a_message_speaks_of_a_capability_by_words_that_few_other_tools_have(
    asked: str, is_spoken_of: bool
) -> None:
    index = ToolIndex([INVOICE, *OTHERS])
    names = [tool.wire_name for tool in index.tools]

    found = ranked_within(index, asked, names, most=3, uses={})

    assert found.is_spoken_of is is_spoken_of
