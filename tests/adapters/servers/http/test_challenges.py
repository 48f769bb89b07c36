"""What a server's `WWW-Authenticate` header asks of a login."""

import pytest

from capd.adapters.servers.http.challenges import MOST_SCOPES, Challenge, scopes_of


@pytest.mark.parametrize(
    ("header", "challenge"),
    [
        ("", Challenge()),
        ("Bearer", Challenge()),
        ('Bearer scope="a b"', Challenge(("a", "b"))),
        ('Bearer error="insufficient_scope", scope=files:read', Challenge(("files:read",))),
        (
            'Bearer realm="x", scope="a", resource_metadata="https://h/.well-known/x"',
            Challenge(("a",), "https://h/.well-known/x"),
        ),
        ('Bearer my-scope="a", noscope=b', Challenge()),
        ('Bearer scope="a\x00b c\\d"', Challenge()),
        ('Bearer scope="a  a b"', Challenge(("a", "b"))),
        ('Bearer resource_metadata="https://h/ x"', Challenge()),
    ],
)
def test_a_header_is_read_as_far_as_it_is_one(header: str, challenge: Challenge) -> None:
    got = Challenge.of(header)

    assert got == challenge


def test_what_several_answers_lack_is_lacking_together() -> None:
    first = Challenge(("a", "b"), "https://h/1")

    got = first.with_more(Challenge(("c", "a")))

    assert got == Challenge(("a", "b", "c"), "https://h/1")


@pytest.mark.parametrize(
    "challenge", [Challenge(), Challenge(("a", "b")), Challenge(("a",), "https://h/1")]
)
def test_it_is_said_as_it_was_read(challenge: Challenge) -> None:
    got = Challenge.of(challenge.header())

    assert got == challenge


def test_scopes_are_bounded() -> None:
    got = scopes_of(" ".join(map(str, range(1000))))

    assert len(got) == MOST_SCOPES
