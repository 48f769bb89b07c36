"""Which server gets a URI: listed resources first, then templates, then a guess."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.protocol.resource_uris import Owners, is_within, matches, owners
from capd_protos.types import ServerIdentity

A, B, C = (ServerIdentity(each) for each in "abc")
LITERAL = st.text(st.sampled_from("ab/:?"), max_size=4)


@pytest.mark.parametrize(
    ("template", "uri", "expected"),
    [
        ("note://one", "note://one", True),
        ("note://one", "note://one/", False),
        ("note://{name}", "note://two", True),
        ("note://{name}", "mote://two", False),
        ("file:///{+path}", "file:///a/b/c", True),
        ("db://{table}/{row}.json", "db://users/7.json", True),
        ("db://{table}/{row}.json", "db://users.json", False),
        ("x{a}x", "x", False),
        ("{a}", "", True),
        ("no{end", "no{end", True),
    ],
)
def test_a_template_matches_what_it_can_make(template: str, uri: str, expected: bool) -> None:
    assert matches(template, uri) is expected


@given(st.lists(LITERAL, min_size=1, max_size=5), st.data())
def test_a_template_matches_whatever_is_put_into_it(
    literals: list[str], data: st.DataObject
) -> None:
    values = [data.draw(LITERAL) for _ in literals[1:]]
    uri = literals[0] + "".join(map("".join, zip(values, literals[1:], strict=True)))

    assert matches("{x}".join(literals), uri)


def test_a_hostile_template_costs_no_more_than_its_length() -> None:
    template, uri = "{a}b" * 20_000 + "c", "b" * 100_000

    started_at = time.process_time()
    found = matches(template, uri)

    assert not found
    # Backtracking would take longer than anybody waits.
    assert time.process_time() - started_at < 5


@pytest.mark.parametrize(
    ("uri", "listed", "templates", "linked", "expected"),
    [
        # Who lists it has it, whoever else has a template.
        ("u:1", {A: [], B: ["u:1"]}, {}, [], Owners([B], [])),
        ("u:1", {A: ["u:1"], B: ["u:1"]}, {}, [], Owners([A, B], [])),
        ("u:1", {A: [], B: [], C: ["u:1"]}, {B: ["u:1{n}", "{n}"]}, [B], Owners([C], [])),
        # Then who linked to it.
        ("u:1", {A: [], B: []}, {A: ["u:{n}"]}, [B], Owners([B], [])),
        ("u:1", {A: [], B: [], C: []}, {}, [A, B], Owners([], [A, B])),
        # Then whose template fits best.
        ("u:9", {A: [], B: []}, {A: ["{+all}"], B: ["u:{n}"]}, [], Owners([B], [])),
        ("u:9", {A: [], B: []}, {A: ["x:{n}", "u:{n}"], B: ["{n}"]}, [], Owners([A], [])),
        ("u:9", {A: [], B: []}, {A: ["u:{n}"], B: ["u:{m}"]}, [], Owners([], [A, B])),
        ("u:9", {A: [], B: []}, {A: ["{+all}"]}, [], Owners([A], [])),
        # With one server it is as without capd, with several nobody is asked.
        ("u:9", {A: []}, {}, [], Owners([A], [])),
        ("u:9", {A: [], B: []}, {}, [], Owners([], [])),
        ("u:9", {}, {A: ["u:{n}"]}, [A], Owners([], [])),
    ],
)
def test_a_resource_belongs_to_who_lists_it_or_to_the_closest_template(
    uri: str,
    listed: dict[ServerIdentity, list[str]],
    templates: dict[ServerIdentity, list[str]],
    linked: list[ServerIdentity],
    expected: Owners,
) -> None:
    assert owners(uri, listed, templates, linked) == expected


@pytest.mark.parametrize(
    ("uri", "subscribed", "expected"),
    [
        ("note://a", "note://a", True),
        ("note://a/b", "note://a", True),
        ("note://a/b", "note://a/", True),
        ("note://a#x", "note://a", True),
        ("note://ab", "note://a", False),
        ("note://", "note://a", False),
    ],
)
def test_news_of_a_part_are_for_who_subscribed_to_the_whole(
    uri: str, subscribed: str, expected: bool
) -> None:
    assert is_within(uri, subscribed) is expected
