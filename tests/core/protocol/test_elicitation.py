"""A person sees which server asks; questions for secrets and hidden URLs are refused."""

import json
from typing import Any

import msgspec
import pytest

from capd.core.protocol.elicitation import (
    MOST_BYTES,
    MOST_QUESTIONS,
    elicitation_for_client,
    is_secret,
    result_for_client,
)
from capd.core.protocol.outcomes import RefusedError
from capd.core.results.large_results import LargeResult
from capd_protos.types import ServerName

ALPHA = ServerName("alpha")


def told(**params: Any) -> dict[str, Any]:
    got: dict[str, Any] = json.loads(elicitation_for_client(ALPHA, json.dumps(params).encode()))
    return got


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"message": "who?"}, "[alpha] who?"),
        ({"message": "[beta] who?"}, "[alpha] [beta] who?"),
        ({"message": "\u202e\x1b[2Kwho?"}, "[alpha] who?"),
        ({}, "[alpha] "),
        ({"message": 7}, "[alpha] "),
        (
            {"mode": "url", "url": "https://a.example:8/x?y#z", "message": "log in"},
            "[alpha, opens a.example:8] log in",
        ),
        ({"mode": "url", "url": "http://127.0.0.1:9/"}, "[alpha, opens 127.0.0.1:9] "),
        ({"mode": "url", "url": "http://localhost/"}, "[alpha, opens localhost] "),
        ({"mode": "url", "url": "http://[::1]:9/"}, "[alpha, opens [::1]:9] "),
    ],
)
def test_the_message_begins_with_the_configured_name(params: dict[str, Any], message: str) -> None:
    assert told(**params, x=[1.0]) == {**params, "x": [1.0], "message": message}


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "http://a.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "https://",
        "https://github.com@evil.example/",
        "https://evil.example\\@github.com/",
        "https://ev\u0456l.example/",
        "https://evil.example /",
        "https://[::1/",
    ],
)
def test_a_page_whose_host_cannot_be_shown_or_trusted_is_refused(url: str) -> None:
    with pytest.raises(RefusedError):
        told(mode="url", url=url, message="log in")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("password", "dbPassword", "API_KEY", "apiKey", "apikey")),
        *((name, True) for name in ("github-token", "token", "Access token", "clientSecret")),
        *((name, True) for name in ("private_key", "cvv", "Card number", "SSH key", "otp")),
        *((name, False) for name in ("name", "key", "keyword", "max_tokens", "tokenizer")),
        *((name, False) for name in ("page_token", "nextToken", "secret_name", "secretId")),
        *((name, False) for name in ("password_policy", "compass", "", "\u043f\u0430", "cardinal")),
    ],
)
def test_what_looks_like_a_secret(name: str, *, expected: bool) -> None:
    assert is_secret(name) == expected


@pytest.mark.parametrize(
    ("field", "is_asked"),
    [
        ({"type": "string"}, False),
        ({}, False),
        ({"type": ["string", "null"]}, False),
        ({"type": "boolean"}, True),
        ({"type": "integer"}, True),
        ({"type": "string", "enum": ["a", "b"]}, True),
        ({"type": "string", "oneOf": [{"const": "a"}]}, True),
    ],
)
def test_a_secret_is_a_text_that_is_not_chosen(field: dict[str, Any], *, is_asked: bool) -> None:
    params = {"message": "x", "requestedSchema": {"properties": {"n": {}, "password": field}}}
    if is_asked:
        assert told(**params)["message"] == "[alpha] x"
    else:
        with pytest.raises(RefusedError, match="'password', which looks like a secret"):
            told(**params)


@pytest.mark.parametrize(
    "field", [{"title": "Your password"}, {"format": "password"}, {"writeOnly": True}]
)
def test_a_field_says_by_its_schema_that_it_is_a_secret(field: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        told(requestedSchema={"properties": {"x": {"type": "string", **field}}})


def test_a_question_has_a_bound() -> None:
    with pytest.raises(RefusedError):
        told(message="x" * MOST_BYTES)


def test_a_result_that_asks_is_labelled_and_keeps_the_rest_as_it_was_written() -> None:
    state = b'"requestState":"\\u0041\\ud83d"'
    result = (
        b'{"resultType":"input_required",%s,"inputRequests":{"a":{"method":"elicitation/create",'
        b'"params":{"message":"who?"},"x":1.0},"b":{"method":"roots/list"}}}' % state
    )

    got = result_for_client(ALPHA, result)

    assert isinstance(got, bytes)
    assert state in got
    requests = json.loads(got)["inputRequests"]
    assert requests["a"] == {
        "method": "elicitation/create",
        "params": {"message": "[alpha] who?"},
        "x": 1.0,
    }
    assert requests["b"] == {"method": "roots/list"}


@pytest.mark.parametrize(
    "result",
    [b'{"content":[]}', b'{"resultType":"input_required","inputRequests":{"b":{"method":"x"}}}'],
)
def test_another_result_is_passed_on_as_it_was_written(result: bytes) -> None:
    assert result_for_client(ALPHA, result) is result


def test_a_result_that_asks_for_a_secret_is_refused() -> None:
    params = {"message": "x", "requestedSchema": {"properties": {"password": {}}}}
    asks = {"a": {"method": "elicitation/create", "params": params}}
    result = {"resultType": "input_required", "inputRequests": asks}

    with pytest.raises(RefusedError):
        result_for_client(ALPHA, msgspec.json.encode(result))


SECRET = (
    b'{"method":"elicitation/create","params":{"message":"x",'
    b'"requestedSchema":{"properties":{"password":{}}}}}'
)


class NoFile:
    async def read(self, start: int, size_bytes: int) -> bytes:
        raise AssertionError((start, size_bytes))


@pytest.mark.parametrize(
    "result",
    [
        b'{"resultType":"input_requir\\u0065d","inputRequests":{"a":%s}}',
        b'{"resultType":"input_required","input\\u0052equests":{"a":%s}}',
        b'{"resultType":"input_required","inputRequests":{"a":%s,"b":1}}',
        b'{"resultType":"input_required","inputRequests":{"a":%s},"requestState":' + b"[" * 2000,
        b'{"resultType":"complete","taskId":"1","status":"input_required","inputRequests":{"a":%s}}',
    ],
    ids=["escaped", "escaped name", "one of them malformed", "deep", "a task's state"],
)
def test_no_spelling_of_a_result_that_asks_passes_unseen(result: bytes) -> None:
    with pytest.raises(RefusedError):
        result_for_client(ALPHA, result.replace(b"%s", SECRET))


def test_a_result_that_only_writes_of_questions_is_passed_on_as_it_was_written() -> None:
    result = b'{"content":[{"inputRequests":{"a":1}}],"structuredContent":"inputRequests"}'

    assert result_for_client(ALPHA, result) is result


def test_a_result_that_is_too_large_for_memory_asks_nothing() -> None:
    with pytest.raises(RefusedError):
        result_for_client(ALPHA, LargeResult(NoFile(), 0, 0, b"", b"", has_questions=True))


@pytest.mark.parametrize("field", [{"pass\u200bword": {}}, {"x": {"title": "Pass\u2060word"}}])
def test_hidden_characters_hide_no_secret(field: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        told(message="x", requestedSchema={"properties": field})


def test_a_result_has_a_bounded_number_of_questions() -> None:
    def asking(count: int) -> bytes:
        asks = {str(number): {"method": "roots/list"} for number in range(count)}
        return msgspec.json.encode({"resultType": "input_required", "inputRequests": asks})

    most = asking(MOST_QUESTIONS)

    assert result_for_client(ALPHA, most) is most
    with pytest.raises(RefusedError, match="64 questions at once"):
        result_for_client(ALPHA, asking(MOST_QUESTIONS + 1))
