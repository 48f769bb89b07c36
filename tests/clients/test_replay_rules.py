"""What happens to a request when the connection is lost, by table, without sockets."""

import pytest

from capd_client.shim.replay import (
    MOST_SENDS,
    Request,
    after_loss,
    after_refusal,
    hello,
    is_same_session,
    requested_values,
)


@pytest.mark.parametrize(
    ("sends", "is_sent", "is_dispatched", "is_kept", "is_endless", "fate"),
    [
        (0, False, False, True, False, "waiting"),
        (1, True, False, True, False, "again"),
        (MOST_SENDS - 1, True, False, True, False, "again"),
        (MOST_SENDS, True, False, True, False, "not_sent"),
        (MOST_SENDS, True, False, True, True, "again"),
        (1, True, False, False, False, "not_sent"),
        (1, True, False, False, True, "not_sent"),
        (0, False, False, False, False, "waiting"),
        (1, True, True, True, False, "unknown"),
        (1, True, True, False, True, "unknown"),
        (MOST_SENDS, True, True, True, False, "unknown"),
    ],
)
def test_a_lost_request_has_one_fate(
    *,
    sends: int,
    is_sent: bool,
    is_dispatched: bool,
    is_kept: bool,
    is_endless: bool,
    fate: str,
) -> None:
    request = Request(1, b"{}\n" if is_kept else None)
    request.sends, request.is_sent, request.is_dispatched = sends, is_sent, is_dispatched

    assert after_loss(request, is_endless=is_endless) == fate


@pytest.mark.parametrize(
    ("sends", "is_kept", "fate"),
    [(1, True, "again"), (MOST_SENDS, True, "unknown"), (1, False, "unknown")],
)
def test_a_request_that_the_next_daemon_goes_on_with_is_never_said_to_be_unsent(
    *, sends: int, is_kept: bool, fate: str
) -> None:
    request = Request(1, b"{}\n" if is_kept else None)
    request.sends, request.is_sent, request.is_durable = sends, True, True

    assert after_loss(request) == fate


@pytest.mark.parametrize(
    ("code", "has_token", "step"),
    [
        ("resume_refused", True, "start_anew"),
        ("resume_refused", False, "end"),
        ("session_in_use", True, "retry"),
        ("overloaded", False, "retry"),
        ("stopping", False, "retry"),
        ("protocol_unsupported", False, "end"),
        ("", True, "end"),
    ],
)
def test_a_refusal_says_whether_to_try_again(*, code: str, has_token: bool, step: str) -> None:
    assert after_refusal(code, has_token=has_token) == step


def test_a_session_goes_on_with_the_daemon_that_knew_it_only() -> None:
    resumed = {"resumed": True}

    assert is_same_session(7, 7, resumed)
    assert not is_same_session(7, 8, resumed)
    assert not is_same_session(7, 7, {"resumed": 1})
    assert not is_same_session(7, 7, {})


def test_a_hello_leaves_out_what_is_empty_or_no_utf_8() -> None:
    frame = hello({"name": "zed"}, cwd="/a", project="", session="\udcff")

    assert frame == {
        "capd": "hello",
        "protocol": 1,
        "role": "mcp",
        "client": {"name": "zed"},
        "cwd": "/a",
        "dispatched": True,
    }


def test_a_daemon_gets_the_variables_that_it_asked_for_and_that_are_set() -> None:
    env = {"A": "1", "B": "", "C": "\udcff", "D": "4"}

    assert requested_values(env, ["A", "B", "C", "E", 5]) == {"A": "1", "B": ""}
    assert requested_values(env, "A") == {}
