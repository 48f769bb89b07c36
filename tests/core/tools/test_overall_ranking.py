"""One ranking of the capabilities, skills and tools that fit a question."""

from hypothesis import given
from hypothesis import strategies as st

from capd.core.tools.overall_ranking import Match, ranked_together

CONVERTER = Match("capability", "document-text", 0.97, "documents as Markdown")
READS_ANY = Match("tool", "files__read_text_file", 0.5)
CONVERTS = Match("tool", "convert__to_markdown", 0.31, capabilities=("document-text",))


def names(matches: list[Match]) -> list[str]:
    return [each.name for each in matches]


def test_a_capability_that_fits_brings_its_own_tool_before_another_ones() -> None:
    ranked = ranked_together([READS_ANY, CONVERTS, CONVERTER], 5)

    assert names(ranked) == ["document-text", "convert__to_markdown", "files__read_text_file"]
    assert ranked[1].score == (0.31 + 0.97) / 2


def test_a_skill_that_fits_best_is_first() -> None:
    skill = Match("skill", "release-notes", 0.7, capabilities=("git",))
    git = Match("capability", "git", 0.34)
    log = Match("tool", "git__git_log", 0.4, capabilities=("git",))

    ranked = ranked_together([git, log, skill], 5)

    assert names(ranked) == ["release-notes", "git__git_log", "git"]


def test_a_tool_that_fits_better_than_its_capability_keeps_its_score() -> None:
    git = Match("capability", "git", 0.2)
    log = Match("tool", "git__git_log", 0.6, capabilities=("git",))

    assert ranked_together([git, log], 5) == [log, git]


def test_what_is_far_behind_the_best_is_left_out() -> None:
    far = Match("capability", "calculator", 0.02)

    assert ranked_together([CONVERTER, far], 5) == [CONVERTER]


def test_of_equals_a_capability_comes_before_a_skill_and_a_tool() -> None:
    equals = [Match("tool", "c", 0.5), Match("skill", "b", 0.5), Match("capability", "a", 0.5)]

    assert names(ranked_together(equals, 2)) == ["a", "b"]


def test_of_one_kind_and_name_the_better_one_stays() -> None:
    twice = [Match("capability", "git", 0.3), Match("capability", "git", 0.8)]

    assert ranked_together(twice, 5) == [Match("capability", "git", 0.8)]


def test_nothing_fits_nothing() -> None:
    assert ranked_together([], 5) == []


@given(
    st.lists(
        st.builds(
            Match,
            st.sampled_from(["capability", "skill", "tool"]),
            st.sampled_from("abcdef"),
            st.floats(-1, 1),
            capabilities=st.lists(st.sampled_from("abcdef"), max_size=2).map(tuple),
        )
    ),
    st.integers(1, 5),
)
def test_the_order_is_that_of_the_scores_and_no_entry_comes_twice(
    matches: list[Match], limit: int
) -> None:
    ranked = ranked_together(matches, limit)

    scores = [each.score for each in ranked]
    assert scores == sorted(scores, reverse=True)
    assert len(ranked) <= limit
    assert len({(each.kind, each.name) for each in ranked}) == len(ranked)
    assert bool(ranked) == bool(matches)
