"""Valid session keys of clients, and keys that capd generates."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capd.core.sessions.session_keys import fresh_key, is_key


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("zed-4f1c", True),
        ("a", True),
        ("A.b_c:d-9", True),
        ("a" * 128, True),
        ("a" * 129, False),
        ("", False),
        ("a b", False),
        ("a/b", False),
        ("a\n", False),
        ("é", False),
    ],
)
def test_a_key_is(text: str, *, is_one: bool) -> None:
    assert is_key(text) is is_one


@pytest.mark.parametrize(
    ("client", "key"),
    [
        ("zed", "zed-4f1c"),
        ("Claude Code (beta)", "Claude-Code-beta-4f1c"),
        ("../..", "..-..-4f1c"),
        ("é", "client-4f1c"),
        ("", "client-4f1c"),
        ("x" * 90, "x" * 40 + "-4f1c"),
    ],
)
def test_a_fresh_key_begins_with_the_clients_name(client: str, key: str) -> None:
    assert fresh_key(client, "4f1c") == key


@given(st.text())
@settings(deadline=None)
def test_whatever_a_client_is_called_its_key_is_one(client: str) -> None:
    assert is_key(fresh_key(client, "0123456789abcdef"))
