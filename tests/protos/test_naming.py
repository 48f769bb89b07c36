"""A table of spellings, each with the name that it refers to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd_protos.naming import Named, NameTable, Unclear, advice, near_names, offer

KNOWN = (
    *("git", "github", "gitlab", "git-history"),
    *("database-postgres", "database-sqlite", "Slack", "web-page"),
    *("codesearch_graph", "codesearch-semantic", "Café", "naïve-bayes"),
    *("boxes", "policy", "classes", "tests", "test"),
    *("数据库", "файлы", "Straße", "AWS", "aws", "x", "docker compose"),
)


def one(name: str) -> Named:
    return Named(name)


def several(*names: str) -> Unclear:
    return Unclear(names, is_ambiguous=True)


def near(*names: str) -> Unclear:
    return Unclear(names)


TABLE = {
    # As it stands.
    "git": one("git"),
    "Slack": one("Slack"),
    "AWS": one("AWS"),
    "aws": one("aws"),
    "x": one("x"),
    "数据库": one("数据库"),
    "docker compose": one("docker compose"),
    "test": one("test"),
    "tests": one("tests"),
    " git ": one("git"),
    "\tgithub\n": one("github"),
    # Whatever its case.
    "GIT": one("git"),
    "GitHub": one("github"),
    "slack": one("Slack"),
    "SLACK": one("Slack"),
    "ФАЙЛЫ": one("файлы"),
    "STRASSE": one("Straße"),
    "X": one("x"),
    "Aws": several("AWS", "aws"),
    "aWS": several("AWS", "aws"),
    "café": one("Café"),
    "cafe\u0301": one("Café"),
    "ｇｉｔ": one("git"),
    # Hyphen, underscore and space.
    "git_history": one("git-history"),
    "git history": one("git-history"),
    "Git  History": one("git-history"),
    "git - history": one("git-history"),
    "git–history": one("git-history"),
    "codesearch-graph": one("codesearch_graph"),
    "CODESEARCH GRAPH": one("codesearch_graph"),
    "web page": one("web-page"),
    "web__page": one("web-page"),
    "-web-page-": one("web-page"),
    "docker-compose": one("docker compose"),
    "database postgres": one("database-postgres"),
    # Without accents.
    "Cafe": one("Café"),
    "naive bayes": one("naïve-bayes"),
    "naive_bayes": one("naïve-bayes"),
    "gìt": one("git"),
    # One or many.
    "box": one("boxes"),
    "policies": one("policy"),
    "class": one("classes"),
    "web-pages": one("web-page"),
    "gits": one("git"),
    "githubs": one("github"),
    # The beginning.
    "web": one("web-page"),
    "sla": one("Slack"),
    "database-p": one("database-postgres"),
    "database_S": one("database-sqlite"),
    "naiv": one("naïve-bayes"),
    "数据": one("数据库"),
    "gi": several("git", "git-history", "github", "gitlab"),
    "gith": one("github"),
    "database": several("database-postgres", "database-sqlite"),
    "codesearch": several("codesearch-semantic", "codesearch_graph"),
    "codesearch-": several("codesearch-semantic", "codesearch_graph"),
    "te": several("test", "tests"),
    # Nothing: what is near.
    "gti": near("git"),
    "gihub": near("github"),
    "postgres": near("database-postgres"),
    "s": near("aws", "boxes", "classes"),
    "w": near("aws", "web-page"),
    "kubernetes": near(),
    "": near(),
    "---": near(),
}


@pytest.mark.parametrize(("wanted", "expected"), TABLE.items())
def test_a_name_means_one_thing_or_is_offered_what_it_may_mean(
    wanted: str, expected: Named | Unclear
) -> None:
    got = NameTable(KNOWN).find(wanted)

    assert got == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("Delete Row", one("delete_row")),
        ("delete-row", one("delete_row")),
        ("delete_rows", near("delete_row", "delete_row_and_all")),
        ("delete", near("delete_row", "delete_row_and_all")),
    ],
)
def test_a_call_takes_another_spelling_and_no_other_word(
    wanted: str, expected: Named | Unclear
) -> None:
    got = NameTable(["delete_row", "delete_row_and_all"]).find(wanted, is_call=True)

    assert got == expected


@given(st.lists(st.text(max_size=12), max_size=12), st.text(max_size=12))
def test_what_is_found_is_known_and_nobody_is_guessed_for(known: list[str], wanted: str) -> None:
    got = NameTable(known).find(wanted)

    if isinstance(got, Named):
        assert got.name in known
    else:
        assert set(got.near) <= set(known)
        assert got.is_ambiguous is False or len(got.near) > 1


@given(st.lists(st.text(min_size=1, max_size=12).map(str.strip).filter(bool), min_size=1))
def test_every_name_means_itself(known: list[str]) -> None:
    got = [NameTable(known).find(name) for name in known]

    assert got == [Named(name) for name in known]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (several("git", "github"), "it may be one of git, github"),
        (near("git"), "near names: git"),
        (near(), ""),
    ],
)
def test_what_is_offered_is_said_in_words(found: Unclear, words: str) -> None:
    got = (offer(found), advice(found))

    assert got == (words, f"{words[0].upper()}{words[1:]}." if words else "")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        pytest.param("gti", ["git"], id="swapped letters"),
        pytest.param("GIT", ["git", "gitlab", "github"], id="case, and what contains it"),
        pytest.param("database", ["database-sqlite", "database-postgres"], id="a part"),
        pytest.param("github-issues", ["github", "git"], id="more than the name"),
        pytest.param("slack", ["Slack"], id="written as it is known"),
        pytest.param("zzzz", [], id="nothing near"),
        pytest.param("", [], id="nothing asked"),
    ],
)
def test_near_names_are(name: str, near: list[str]) -> None:
    known = ["gitlab", "git", "database-sqlite", "github", "Slack", "database-postgres"]

    got = near_names(name, known)

    assert got == near


def test_no_more_near_names_than_asked_for() -> None:
    got = near_names("tool", [f"tool-{n}" for n in range(9)], limit=2)

    assert len(got) == 2
