"""The first and second level of the index fit their token budgets."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.adapters.tokens.token_counts import count
from capd.core.index.summaries import Suggestions, call_of, suggestions, summary
from capd.core.index.token_costs import TokenCosts
from capd.core.index.trigger_map import TriggerMap, trigger_map
from capd_protos.index import IndexEntry
from capd_protos.types import CapabilityId, CapabilityName, TapName
from support.examples import examples


class Everything(dict[str, int]):
    """Every piece, counted when it is asked for."""

    def get(self, piece: str, default: object = None) -> int:
        del default
        return count(piece)


EXACT = TokenCosts(Everything())
NOTHING = TokenCosts()
CLAUDE = call_of("mcp__capd__capability")
WORDS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "git",
            "数据库查询工具",
            "أداة البحث في الملفات",
            "🙂👩‍💻🇩🇪",
            "x" * 90,
            "a b c d e f",
            "'s '' \"\" {}",
        ]
    ),
)
ENTRIES = st.lists(
    st.builds(
        IndexEntry,
        st.builds(CapabilityId, st.just(TapName("t")), WORDS.map(CapabilityName)),
        WORDS,
        st.lists(WORDS, max_size=6).map(" ".join),
        st.lists(WORDS, max_size=2),
        st.none() | st.integers(0, 999),
        st.none() | st.integers(0, 99999),
    ),
    max_size=40,
)
COSTS = st.sampled_from([EXACT, NOTHING])


def entry(name: str, verb: str = "read", do: str = "Reads a file", **more: object) -> IndexEntry:
    id_ = CapabilityId(TapName("t"), CapabilityName(name))
    return IndexEntry(id_, verb, do, **more)  # type: ignore[arg-type] # members by their names


def test_the_map_is_flat_and_has_verbs_before_nouns() -> None:
    entries = [entry("git", "show"), entry("docker", "run"), entry("files", "show")]

    got = trigger_map(entries, EXACT)

    text = "Installed (verb: capabilities):\nshow: git, files\nrun: docker"
    assert got == TriggerMap(text, listed=3, left_out=0, tokens=count(text))


def test_what_has_no_room_on_the_map_is_counted() -> None:
    entries = [entry(f"capability-{number}") for number in range(100)]

    got = trigger_map(entries, EXACT)

    assert (got.listed + got.left_out, got.tokens <= 150) == (100, True)
    assert got.text.count("capability-") == got.listed > 30


def test_a_name_that_is_too_long_keeps_no_other_from_the_map() -> None:
    entries = [entry("x1-" * 200), entry("git")]

    got = trigger_map(entries, EXACT)

    assert (got.listed, got.left_out) == (1, 1)


@settings(max_examples=examples(60), deadline=None)
@given(ENTRIES, COSTS, st.integers(0, 200))
def test_a_map_takes_no_more_than_its_budget_and_forgets_nobody(
    entries: list[IndexEntry], costs: TokenCosts, room: int
) -> None:
    got = trigger_map(entries, costs, room)

    assert count(got.text) <= got.tokens <= room
    assert got.listed + got.left_out == len(entries)
    assert trigger_map(entries, costs, room) == got


def test_a_capability_is_told_in_what_it_does_when_and_by_which_call() -> None:
    docker = entry(
        "docker", "run", "Runs containers", use_when=["restart it"], tools=9, tokens=2100
    )

    got = summary(docker, CLAUDE, EXACT)

    assert got == (
        "Installed, off: docker. DO Runs containers. "
        'USE_WHEN "restart it". NEXT mcp__capd__capability '
        '{"action":"enable","name":"docker"} COST 9 tools, 2100 tokens'
    )


@pytest.mark.parametrize("tool", ["capability", "capd_capability", "mcp_capd_capability"])
def test_the_next_call_is_that_of_the_client(tool: str) -> None:
    got = summary(entry("docker"), call_of(tool), EXACT)

    assert f'NEXT {tool} {{"action":"enable","name":"docker"}}' in got


def test_several_have_one_call_and_say_what_they_do_as_far_as_there_is_room() -> None:
    entries = [entry("git", do="Reads history"), entry("files"), entry("web", do="Fetches pages")]

    got = suggestions(entries, CLAUDE, EXACT)

    assert got.text == (
        'Installed, off; NEXT mcp__capd__capability {"action":"enable","name":"git"} or another '
        "of:\n- git: DO Reads history.\n- files: DO Reads a file.\n- web: DO Fetches pages."
    )
    assert (got.named, got.left_out) == (3, 0)


def test_those_that_have_no_room_are_counted_and_the_best_stays() -> None:
    entries = [entry("git"), entry("a-very-long-name-" * 9), entry("another-long-name-" * 9)]

    got = suggestions(entries, CLAUDE, EXACT)

    assert (got.named, got.left_out) == (1, 2)
    assert '"name":"git"' in got.text


@settings(max_examples=examples(60), deadline=None)
@given(ENTRIES.map(lambda entries: entries[:4]), COSTS, st.integers(0, 70))
def test_suggestions_take_no_more_than_their_budget_and_forget_nobody(
    entries: list[IndexEntry], costs: TokenCosts, room: int
) -> None:
    got = suggestions(entries, CLAUDE, costs, room)

    assert count(got.text) <= room
    assert got.named + got.left_out == len(entries)


@settings(max_examples=examples(60), deadline=None)
@given(ENTRIES.filter(bool), COSTS)
def test_one_capability_takes_sixty_tokens_at_most(
    entries: list[IndexEntry], costs: TokenCosts
) -> None:
    got = summary(entries[0], CLAUDE, costs)

    assert count(got) <= 60


def test_nothing_that_fits_is_nothing_said() -> None:
    got = suggestions([], CLAUDE, EXACT)

    assert got == Suggestions()
