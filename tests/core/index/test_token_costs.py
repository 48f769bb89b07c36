"""The sum of the pieces' tokens is compared with the tokenizer's count of the whole text."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from capd.adapters.tap_files import read_tap, starter_place
from capd.adapters.tokens.token_counts import count
from capd.core.index.extraction import extract_words
from capd.core.index.token_costs import FRAMES, TokenCosts, one_line, pieces, usual_bound
from capd.core.index.trigger_map import trigger_map
from capd.core.index.usual_words import JOINTS, USUAL_WORDS
from capd_protos.index import IndexEntry
from support.examples import examples

SCRIPTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from("aZ09 _-.,:;'\"{}()/\\\n\t"),
        st.sampled_from("数据库查询の東京한국어"),
        st.sampled_from("أداة البحث في الملفات🙂👩‍💻🇩🇪é\u0301ñ"),
    ),
    max_size=60,
)


def counted(text: str) -> TokenCosts:
    return TokenCosts({piece: count(piece) for piece in pieces(text)})


@settings(max_examples=examples(400), deadline=None)
@given(SCRIPTS)
@example("git__git_log, git__git_show and 3 more")
@example('mcp__capd__capability {"action":"enable","name":"docker-compose"}')
@example("it's DON'T x'LL 'twas  two  blanks \n\n/three//four")
@example("١٢٣ 1️⃣ a\u0301b ﷺ")
def test_a_text_is_the_sum_of_its_pieces(text: str) -> None:
    got = counted(text).of(text)

    assert got == count(text)


@settings(max_examples=examples(400), deadline=None)
@given(SCRIPTS, st.sets(st.integers(0, 20)))
def test_what_was_never_counted_is_taken_for_too_much_and_never_for_too_little(
    text: str, left: set[int]
) -> None:
    found = list(dict.fromkeys(pieces(text)))
    some = {piece: count(piece) for at, piece in enumerate(found) if at in left}

    got = TokenCosts(some).of(text)

    assert got >= count(text)


@settings(max_examples=examples(400), deadline=None)
@given(SCRIPTS, st.integers(0, 30), st.booleans())
def test_a_cut_text_takes_no_more_than_there_is_room_for(
    text: str, room: int, is_counted: bool
) -> None:
    costs = counted(one_line(text)) if is_counted else TokenCosts()

    got = costs.cut(one_line(text), room)

    assert count(got) <= room


def test_the_words_around_capabilities_are_counted_right() -> None:
    got = {piece: count(piece) for piece in FRAMES}

    assert got == FRAMES


@given(SCRIPTS)
def test_pieces_are_the_text(text: str) -> None:
    got = "".join(pieces(text))

    assert got == text


def test_only_what_is_not_known_has_to_be_counted() -> None:
    costs = TokenCosts({"git": 1})

    got = costs.unknown(["git log", "git log --all"])

    assert got == [" log", " --all"]


@pytest.mark.parametrize(
    ("text", "line"),
    [("a\n\tb  c ", "a b c"), ("red \x1b[31m", "red [31m"), ("\u202eabc", "abc"), ("", "")],
)
def test_a_line_is_one_and_steers_nothing(text: str, line: str) -> None:
    got = one_line(text)

    assert got == line


def test_no_usual_word_has_more_tokens_than_its_bound() -> None:
    forms = [joint + word for word in USUAL_WORDS for joint in ("", " ", *JOINTS)]

    too_small = {form: count(form) for form in forms if count(form) > (usual_bound(form) or 0)}

    assert not too_small


def test_the_map_of_the_starter_tap_is_whole_before_anything_was_counted() -> None:
    starter = read_tap(starter_place())
    words = {each.id: extract_words(each) for each in starter.capabilities}
    entries = [IndexEntry(id_, each.verb, each.do) for id_, each in words.items()]

    got = trigger_map(entries, TokenCosts())

    assert (got.listed, got.left_out) == (len(entries), 0)
