"""Parses what an authorization server answers: its redirect, and its device grant (RFC 8628).

The redirect arrives in one of two ways: a browser on this machine opens it at a local port, or a
person copies its address from a browser elsewhere and pastes it. In both cases the redirect's
`state` must be that of the login that waits, so that the code of another login is never redeemed.
"""

import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from capd.core.errors import CapdError

MOST_PASTED = 8192
"""A pasted address of more characters is refused."""
_MOST_FIELDS = 32
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
_MOST_CODE = 64
_MOST_URL = 2048
_MOST_DEVICE_CODE = 4096
LEAST_INTERVAL, USUAL_INTERVAL, MOST_INTERVAL = 1.0, 5.0, 60.0
"""Seconds between two polls. RFC 8628, section 3.2, says 5 if the server gives no interval."""
_SLOWER = 5.0
"""Seconds by which `slow_down` lengthens the interval (RFC 8628, section 3.5)."""
_TOO_MANY, _FAULT = 429, 500


class PasteError(CapdError):
    """The pasted text cannot be used; the error's text says what to paste instead."""


class DeviceError(CapdError):
    """The device flow cannot continue; the text says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The query parameters of a login's redirect (RFC 6749, section 4.1.2).

    `iss` is from RFC 9207.
    """

    code: str
    state: str
    iss: str | None
    """The authorization server that answers; empty if the redirect names several, None if it names
    none."""
    error: str


def read_redirect(query: str, state: str) -> Answer | None:
    """Return the parameters in the query of a redirect; None if it has another `state`.

    A parameter that occurs twice counts as missing. But an `iss` that occurs twice becomes an empty
    text, not None, so that the login fails: one authorization server may have led on to the login
    page of another.
    """
    try:
        fields = parse_qs(query, max_num_fields=_MOST_FIELDS)
    except ValueError:
        return None
    found = {key: values[0] for key, values in fields.items() if len(values) == 1}
    given_state = found.get("state", "")
    if not state or not secrets.compare_digest(given_state.encode(), state.encode()):
        return None
    iss = found.get("iss", "") if "iss" in fields else None
    return Answer(found.get("code", ""), given_state, iss, found.get("error", ""))


def read_pasted(text: str, redirect: str, state: str) -> Answer:
    """Return the parameters in the address that a person pasted.

    `redirect` is the redirect address of the login, without a query, and `state` is its state.

    Raises:
        PasteError: `text` is not this login's redirect, or the redirect has no code.
    """
    wanted = f"the browser shows an address that begins with {redirect}, and cannot open it"
    if len(text) > MOST_PASTED:
        raise PasteError(
            f"that is longer than {MOST_PASTED} characters: once you have logged in, {wanted}"
        )
    try:
        target = urlsplit(text.strip())
    except ValueError:
        raise PasteError(f"that is not an address: once you have logged in, {wanted}") from None
    if f"{target.scheme}://{target.netloc}{target.path}" != redirect:
        raise PasteError(f"that is another address: once you have logged in, {wanted}. Paste that")
    answer = read_redirect(target.query, state)
    if answer is None:
        raise PasteError(
            "that address is of another login: open the address above, log in there, and paste"
            " what it leads to"
        )
    if not answer.code and not answer.error:
        raise PasteError("that address has no code in it: copy all of it")
    return answer


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """A device authorization response: where a person enters which code, and how to poll."""

    device_code: str
    user_code: str
    address: str
    """The address where the code is entered; it contains the code if the server supports that."""
    pages: tuple[str, ...]
    """Every address in the response, with and without the code."""
    interval: float
    """Seconds between two polls."""
    expires_in: float
    """Seconds until the codes expire."""

    def __repr__(self) -> str:
        """Return a text without the secret codes."""
        return "DeviceGrant(...)"


def read_grant(document: object) -> DeviceGrant:
    """Return the device grant in the decoded JSON of a device authorization response.

    Raises:
        DeviceError: a member is missing or invalid, or the code is too long to type.
    """
    members = document if isinstance(document, dict) else {}
    device_code = _text(members.get("device_code"), _MOST_DEVICE_CODE)
    user_code = _text(members.get("user_code"), _MOST_CODE)
    page = _text(members.get("verification_uri"), _MOST_URL)
    if not (device_code and page and user_code.isascii() and user_code.isprintable() and user_code):
        raise DeviceError("its answer to the device login is not valid")
    whole = _text(members.get("verification_uri_complete"), _MOST_URL)
    return DeviceGrant(
        device_code,
        user_code,
        whole or page,
        (page, whole) if whole else (page,),
        _seconds(members.get("interval"), USUAL_INTERVAL, LEAST_INTERVAL, MOST_INTERVAL),
        _seconds(members.get("expires_in"), 600.0, 1.0, 3600.0),
    )


def next_interval(interval: float, status: int, error: str) -> float:
    """Return the seconds until the next poll, after a response without a token.

    `interval` is the present one, `status` the HTTP status, `error` the OAuth error code.

    Raises:
        DeviceError: the login was refused, has expired, or failed in another way.
    """
    if error == "authorization_pending":
        return interval
    if error == "slow_down" or status == _TOO_MANY:
        return min(interval + _SLOWER, MOST_INTERVAL)
    if status >= _FAULT:
        return min(interval * 2, MOST_INTERVAL)
    if error == "access_denied":
        raise DeviceError("it was refused on the login page")
    if error == "expired_token":
        raise DeviceError("its code has expired")
    raise DeviceError(f"the authorization server says {error[:60]!a}")


def _text(value: object, most: int) -> str:
    return value if isinstance(value, str) and len(value) <= most else ""


def _seconds(value: object, usual: float, least: float, most: float) -> float:
    # JSON may have a number that is too large for a float, and Python also reads NaN, the only
    # number that does not equal itself.
    if not isinstance(value, int | float) or isinstance(value, bool) or value != value:  # noqa: PLR0124
        return usual
    return float(min(max(value, least), most))
