"""Which protocol extensions a session offers to its client."""

import msgspec
import pytest

from capd.core.protocol.extensions import (
    MOST_EXTENSIONS,
    MOST_SETTINGS_BYTES,
    RELAYED,
    session_extensions,
)


def named(*of_servers: object) -> dict[str, object]:
    found = session_extensions(msgspec.json.encode(each) for each in of_servers)
    own = {name: msgspec.json.decode(settings) for name, settings in found.items()}
    assert all(own.pop(name) == {} for name in RELAYED)
    return own


def test_the_first_servers_settings_of_an_extension_count() -> None:
    assert named({"a/b": {"c": 1}}, {"a/b": {"c": 2}, "d.e/f": {}}) == {
        "a/b": {"c": 1},
        "d.e/f": {},
    }


@pytest.mark.parametrize(
    "written",
    [
        None,
        [],
        "a/b",
        {"nameless": {}},
        {"a/b/c": {}},
        {"a b/c": {}},
        {"a/" + "b" * 200: {}},
        {"a/b": []},
        {"a/b": True},
        {"a/b": {"c": "x" * MOST_SETTINGS_BYTES}},
        {RELAYED[0]: {"evil": 1}},
    ],
)
def test_what_is_no_extension_is_not_named(written: object) -> None:
    assert named(written) == {}


def test_a_server_cannot_name_extensions_without_end() -> None:
    found = session_extensions([msgspec.json.encode({f"a/b{i}": {} for i in range(500)})])

    assert len(found) == MOST_EXTENSIONS
