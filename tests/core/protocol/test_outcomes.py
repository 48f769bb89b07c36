"""What a model reads when a call has no result."""

import json

import pytest

from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    ServerError,
    failed_result,
    text_result,
)


@pytest.mark.parametrize(
    ("error", "outcome", "is_retriable"),
    [
        (NotSentError("why"), "not_sent", True),
        (OutcomeUnknownError("why"), "outcome_unknown", False),
        (RefusedError("why"), "refused", False),
        (CallFailedError("why"), "refused", False),
    ],
)
def test_a_failed_call_becomes_a_result_that_says_whether_to_repeat_it(
    error: CallFailedError, outcome: str, *, is_retriable: bool
) -> None:
    got = failed_result(error)

    assert json.loads(got) == {
        "content": [{"type": "text", "text": "why"}],
        "isError": True,
        "_meta": {"capd/outcome": outcome, "capd/retriable": is_retriable},
    }


@pytest.mark.parametrize("is_error", [True, False])
def test_an_answer_of_an_own_tool_is_a_result(*, is_error: bool) -> None:
    got = text_result('a "b"\n', is_error=is_error)

    assert json.loads(got) == {
        "content": [{"type": "text", "text": 'a "b"\n'}],
        "isError": is_error,
    }


def test_a_servers_own_error_is_kept_as_it_was_written() -> None:
    error = ServerError(b'{"code":-32602, "message":"x"}')

    assert (error.error, isinstance(error, CallFailedError)) == (
        b'{"code":-32602, "message":"x"}',
        False,
    )
