"""capd's answer to `initialize`."""

import pytest

from capd.core.protocol.generations import HANDSHAKE_VERSIONS as VERSIONS
from capd.core.protocol.handshake import (
    CAPABILITIES,
    agreed_version,
    discover_result,
    initialize_result,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_of_the_handshake_generation_is_agreed_to(version: str) -> None:
    assert agreed_version(version) == version


@pytest.mark.parametrize("asked", ["2026-07-28", "2024-01-01", "", None, 7, [], {}])
def test_whatever_else_is_asked_for_gets_the_newest(asked: object) -> None:
    assert agreed_version(asked) == "2025-11-25"


def test_the_result_announces_that_the_list_of_tools_changes() -> None:
    got = initialize_result("2025-06-18", "0.1.0", "words", {"a/b": {"c": 1}})

    assert got == {
        "protocolVersion": "2025-06-18",
        "capabilities": {**CAPABILITIES, "extensions": {"a/b": {"c": 1}}},
        "serverInfo": {"name": "capd", "title": "capd", "version": "0.1.0"},
        "instructions": "words",
    }


def test_nothing_to_say_is_not_said() -> None:
    got = [initialize_result("2025-06-18", "0.1.0", "", {}), discover_result("0.1.0", "", {})]

    assert ["instructions" in each for each in got] == [False, False]
