"""Values of sessions: each its own, and shown to nobody."""

from capd.adapters.clients.session_environment import SessionEnvironments
from capd_protos.types import SessionKey

A, B = SessionKey("a"), SessionKey("b")


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
