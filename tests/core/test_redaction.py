"""No form of a secret remains in a redacted text."""

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.redaction import MARK, redactor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("bad key sk-123/4 given", f"bad key {MARK} given"),
        ("GET /?key=sk-123%2F4&x", f"GET /?key={MARK}&x"),
        ("Basic c2stMTIzLzQ=", f"Basic {MARK}="),
        ("sk-123/4sk-123/4", MARK * 2),
        ("nothing of it: sk-12", "nothing of it: sk-12"),
    ],
)
def test_a_secret_is_taken_out(text: str, expected: str) -> None:
    assert redactor(["sk-123/4"])(text) == expected


def test_a_secret_within_another_leaves_nothing_of_either() -> None:
    assert redactor(["inner", "an-inner-one"])("say an-inner-one, inner") == f"say {MARK}, {MARK}"


def test_what_is_too_short_to_be_a_secret_tears_no_text_apart() -> None:
    assert redactor(["", "a", "abc"])("abracadabra abc") == "abracadabra abc"


@given(st.text(st.characters(codec="utf-8"), min_size=4), st.text(), st.text())
def test_no_form_of_a_secret_survives_in_any_text(secret: str, before: str, after: str) -> None:
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    redacted = redactor([secret])

    for form in (secret, quote(secret, safe=""), encoded):
        assert MARK in redacted(f"{before}{form}{after}")
