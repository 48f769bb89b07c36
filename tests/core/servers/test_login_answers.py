"""Valid answers to a login: redirects, pasted addresses, device grants and polls."""

import pytest

from capd.core.servers.login_answers import (
    MOST_PASTED,
    Answer,
    DeviceError,
    PasteError,
    next_interval,
    read_grant,
    read_pasted,
    read_redirect,
)

HERE = "http://127.0.0.1:8123/callback"
GRANT = {
    "device_code": "secret",
    "user_code": "WDJB-MJHT",
    "verification_uri": "https://login.example/device",
}


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("code=c&state=s", Answer("c", "s", None, "")),
        ("code=c&state=s&iss=https://i", Answer("c", "s", "https://i", "")),
        ("error=access_denied&state=s", Answer("", "s", None, "access_denied")),
        ("code=c&code=d&state=s", Answer("", "s", None, "")),
        ("code=c&state=t", None),
        ("code=c&state=s&state=t", None),
        ("code=c&state=", None),
        ("code=c", None),
        ("", None),
        ("&".join(f"a{i}=b" for i in range(99)) + "&state=s", None),
    ],
)
def test_a_redirect_counts_with_the_state_of_its_login_alone(
    query: str, answer: Answer | None
) -> None:
    assert read_redirect(query, "s") == answer


def test_before_a_login_has_a_state_no_redirect_counts() -> None:
    assert read_redirect("code=c&state=", "") is None


def test_a_pasted_address_is_read_like_the_redirect() -> None:
    assert read_pasted(f"  {HERE}?code=c&state=s&iss=i\n", HERE, "s") == Answer("c", "s", "i", "")


@pytest.mark.parametrize(
    ("pasted", "reason"),
    [
        (f"{HERE}?code=c&state=other", "of another login"),
        (f"{HERE}?code=c", "of another login"),
        (f"{HERE}?state=s", "no code"),
        ("http://127.0.0.1:8124/callback?code=c&state=s", "another address"),
        ("http://localhost:8123/callback?code=c&state=s", "another address"),
        ("https://127.0.0.1:8123/callback?code=c&state=s", "another address"),
        ("http://127.0.0.1:8123/callback/x?code=c&state=s", "another address"),
        ("http://user@127.0.0.1:8123/callback?code=c&state=s", "another address"),
        ("c", "another address"),
        ("", "another address"),
        ("http://[::1/callback?code=c&state=s", "not an address"),
        (f"{HERE}?code=c&state=s&x={'x' * MOST_PASTED}", "longer than"),
    ],
)
def test_what_is_pasted_and_is_not_this_logins_is_refused(pasted: str, reason: str) -> None:
    with pytest.raises(PasteError, match=reason):
        read_pasted(pasted, HERE, "s")


def test_a_device_grant_has_the_intervals_of_the_rfc() -> None:
    grant = read_grant(GRANT)

    assert (grant.user_code, grant.address, grant.pages, grant.interval, grant.expires_in) == (
        "WDJB-MJHT",
        "https://login.example/device",
        ("https://login.example/device",),
        5.0,
        600.0,
    )


def test_the_address_with_the_code_in_it_is_shown_where_there_is_one() -> None:
    whole = f"{GRANT['verification_uri']}?user_code=WDJB-MJHT"

    grant = read_grant({**GRANT, "verification_uri_complete": whole})

    assert grant.address == whole
    assert grant.pages == (GRANT["verification_uri"], whole)


@pytest.mark.parametrize(
    ("interval", "expires_in", "expected"),
    [
        (0, 0, (1.0, 1.0)),
        (-5, 1e9, (1.0, 3600.0)),
        (900, 30, (60.0, 30.0)),
        ("x", True, (5, 600)),
        pytest.param(10**400, 10**400, (60.0, 3600.0), id="no float is that large"),
        (float("nan"), float("nan"), (5.0, 600.0)),
    ],
)
def test_intervals_are_within_bounds(
    interval: object, expires_in: object, expected: tuple[float, float]
) -> None:
    grant = read_grant({**GRANT, "interval": interval, "expires_in": expires_in})

    assert (grant.interval, grant.expires_in) == expected


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        *({key: value for key, value in GRANT.items() if key != left_out} for left_out in GRANT),
        {**GRANT, "user_code": "x" * 65},
        {**GRANT, "user_code": "A\x1b[2J"},
        {**GRANT, "user_code": "АBC"},
        {**GRANT, "device_code": 7},
        {**GRANT, "verification_uri": "https://" + "x" * 3000},
    ],
)
def test_an_answer_that_is_no_device_grant_is_refused(document: object) -> None:
    with pytest.raises(DeviceError):
        read_grant(document)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, "authorization_pending", 5.0),
        (400, "slow_down", 10.0),
        (429, "", 10.0),
        (503, "", 10.0),
    ],
)
def test_a_poll_that_brings_no_token_says_when_the_next_one_is(
    status: int, error: str, expected: float
) -> None:
    assert next_interval(5.0, status, error) == expected


def test_polls_are_a_minute_apart_at_most() -> None:
    assert next_interval(59.0, 400, "slow_down") == next_interval(59.0, 502, "") == 60.0


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("access_denied", "it was refused on the login page"),
        ("expired_token", "its code has expired"),
        ("invalid_grant\x1b", "the authorization server says 'invalid_grant\\x1b'"),
        ("", "the authorization server says ''"),
    ],
)
def test_a_poll_that_is_refused_ends_the_login(error: str, text: str) -> None:
    with pytest.raises(DeviceError) as refused:
        next_interval(5.0, 400, error)

    assert str(refused.value) == text
