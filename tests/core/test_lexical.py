"""Words, BM25 and n-grams: the lexical similarity of texts."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.lexical import Bm25, Coverage, Ngrams, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("get_pull_requests", ["pull", "request"], id="an underscore"),
        pytest.param("HTTPServer", ["http", "server", "httpserver"], id="camel case, and whole"),
        pytest.param("utf8", ["utf", "8", "utf8"], id="digits"),
        pytest.param("queries query querying", ["queri"] * 3, id="endings of one word"),
        pytest.param("deployed deploys deploying", ["deploi"] * 3, id="endings of a verb"),
        pytest.param("what is the", [], id="stop words alone"),
        pytest.param("Größe größe", ["größe", "größe"], id="letters beyond ASCII"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_the_words_of_a_text(text: str, found: list[str]) -> None:
    got = words(text)

    assert got == found


@given(st.text(max_size=300))
@settings(deadline=None)
def test_any_text_has_words_and_none_of_them_is_empty(text: str) -> None:
    got = words(text)

    assert all(got)


def test_the_document_with_the_rarer_word_scores_higher() -> None:
    index = Bm25([words(text) for text in ("git log of a file", "sqlite file", "pdf file")])

    got = index.scores(words("git file"))

    assert got.argmax() == 0
    assert got[1] > 0


def test_a_word_that_no_document_has_scores_nothing() -> None:
    got = Bm25([["git"], []]).scores(["zebra"])

    assert got.tolist() == [0.0, 0.0]


def test_a_word_said_twice_counts_once() -> None:
    index = Bm25([["git"], ["pdf"]])

    got = index.scores(["git", "git"])

    assert got.tolist() == index.scores(["git"]).tolist()


def test_without_documents_there_are_no_scores() -> None:
    got = (Bm25([]).scores(["git"]), Ngrams([]).similarities("git"))

    assert [len(each) for each in got] == [0, 0]


def test_coverage_is_the_share_of_a_query_that_a_document_has_words_for() -> None:
    index = Coverage([["git", "history"], ["mail"]], [["history"], ["history"]])

    got = index.shares(["git", "history", "git", "unseen"])

    rarities = {"git": math.log(5 / 1.5), "history": math.log(5 / 3.5), "unseen": math.log(5 / 0.5)}
    covered = (rarities["git"] + rarities["history"]) / sum(rarities.values())
    assert got.tolist() == pytest.approx([covered, 0.0])


def test_a_query_without_words_is_covered_by_nothing() -> None:
    got = Coverage([["git"]]).shares([])

    assert got.tolist() == [0.0]


def test_a_text_is_itself_and_a_typo_is_near() -> None:
    index = Ngrams(["deploy the kubernetes cluster", "write a letter"])

    got = [
        index.similarities(text)[0] for text in ("deploy kubernetes cluster", "kubernets clster")
    ]

    assert got[0] == pytest.approx(1.0, abs=1e-5)
    assert 0.2 < got[1] < 0.9
