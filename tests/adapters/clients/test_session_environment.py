"""Each session has its own environment values, which no other session sees."""

from collections.abc import Mapping

from capd.adapters.clients.session_environment import NothingStored, SessionEnvironments
from capd_protos.types import SessionKey

A, B = SessionKey("a"), SessionKey("b")


class Stored(NothingStored):
    """Stored values, in memory."""

    def __init__(self, **values: str) -> None:
        self._values = values

    def values(self) -> Mapping[str, str]:
        return self._values

    def sources(self) -> dict[str, str]:
        return dict.fromkeys(self._values, "keyring")


def test_each_session_has_its_own_values_and_later_ones_count() -> None:
    environments = SessionEnvironments()
    environments.put(A, {"X": "1", "Y": "2", "EMPTY": ""})
    environments.put(A, {"X": "3"})

    assert environments.values(A) == {"X": "3", "Y": "2"}
    assert (environments.keys(A), environments.keys(B)) == (["X", "Y"], [])
    assert environments.values(B) == {}


def test_a_session_that_is_over_has_no_values() -> None:
    environments = SessionEnvironments()
    environments.put(A, {"X": "1"})
    environments.put(B, {"X": "2"})

    environments.drop(A)
    environments.drop(A)

    assert (environments.values(A), environments.values(B)) == ({}, {"X": "2"})


def test_no_value_is_shown() -> None:
    environments = SessionEnvironments()
    environments.put(A, {"TOKEN": "hunter2"})

    assert f"{environments!r} {environments}" == "SessionEnvironments(1 sessions) " * 2 or (
        "hunter2" not in f"{environments!r} {environments}"
    )


def test_what_is_stored_counts_where_the_session_has_no_value_of_its_own() -> None:
    environments = SessionEnvironments(Stored(X="stored", Y="stored"))
    environments.put(A, {"X": "own", "Y": "", "Z": "own"})

    assert environments.values(A) == {"X": "own", "Y": "stored", "Z": "own"}
    assert environments.sources(A) == {"X": "session", "Y": "keyring", "Z": "session"}
    assert environments.keys(A) == ["X", "Y", "Z"]
    assert (environments.own(A), environments.own(B)) == ({"X": "own", "Z": "own"}, {})
    assert environments.values(B) == {"X": "stored", "Y": "stored"}
