"""What a script gets from a call, and what the model gets from a script."""

import json
from typing import Any

import pytest

from capd.core.protocol.outcomes import (
    CallFailedError,
    NotSentError,
    OutcomeUnknownError,
    RefusedError,
    ServerError,
)
from capd.core.scripts.run import PastCall
from capd.core.scripts.script_answers import (
    MOST_PRINTED,
    MOST_VALUE_BYTES,
    ScriptEnd,
    answer_of,
    failed_answer,
    report,
)
from capd_protos.types import WireName


def said(*texts: str, **members: Any) -> bytes:
    content = [{"type": "text", "text": text} for text in texts]
    return json.dumps({"content": content, **members}).encode()


@pytest.mark.parametrize(
    ("result", "kind", "value"),
    [
        (said("plain"), "value", '"plain"'),
        (said("a", "b"), "value", '"a\\nb"'),
        (said(' {"a": 1} '), "value", '{"a": 1}'),
        (said("[1, 2]"), "value", "[1, 2]"),
        (said("{no json"), "value", '"{no json"'),
        (said("12"), "value", '"12"'),
        (said("x", structuredContent={"n": 1}), "value", '{"n": 1}'),
        (said("bad", isError=True), "ToolError", "bad"),
        (b'{"content":[{"type":"image","data":"aaaa"}]}', "value", '"[image]"'),
        (b'{"content":[{"type":"resource","resource":{"text":"t"}}]}', "value", '"t"'),
        (b"{}", "value", '""'),
    ],
)
def test_a_result_is_its_structured_content_or_its_text(
    result: bytes, kind: str, value: str
) -> None:
    answer = answer_of(result)

    assert (answer.kind, answer.value.decode(), answer.size_bytes) == (kind, value, len(result))


@pytest.mark.parametrize("result", [b"[]", b"{", b"x" * (MOST_VALUE_BYTES + 1)])
def test_a_result_that_cannot_be_had_is_an_error_of_the_tool(result: bytes) -> None:
    assert answer_of(result).kind == "ToolError"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotSentError("x"), "NotSent"),
        (RefusedError("x"), "Refused"),
        (OutcomeUnknownError("x"), "OutcomeUnknown"),
        (ServerError(b'{"code":1}'), "ToolError"),
    ],
)
def test_an_outcome_that_is_no_result_is_the_exception_of_its_name(
    error: CallFailedError | ServerError, kind: str
) -> None:
    assert failed_answer(error).kind == kind


CALLS = [
    PastCall(0, WireName("git__git_log"), "value", 1000, 4.0),
    PastCall(1, WireName("git__git_log"), "value", 3000, 8.0),
    PastCall(2, WireName("git__git_show"), "ToolError", 50, 1.0),
]
NAMES = {WireName("git__git_log"): "git.log"}


def test_calls_are_told_by_tool_and_outcome_with_what_the_model_was_spared() -> None:
    assert report(ScriptEnd(b"1"), CALLS, NAMES, 50) == (
        "3 calls; 4,000 bytes of their results are not shown:\n"
        "- git.log x2: result, 6 ms each, 4,000 bytes\n"
        "- git__git_show: error, 1 ms each, 50 bytes"
    )


def test_an_error_tells_every_call_in_order() -> None:
    assert report(ScriptEnd(error="Line 1: E", printed="p\n"), CALLS, NAMES, 0) == (
        "Line 1: E\n"
        "Printed:\np\n"
        "Its calls, in order:\n"
        "1. git.log: result, 4 ms, 1,000 bytes\n"
        "2. git.log: result, 8 ms, 3,000 bytes\n"
        "3. git__git_show: error, 1 ms, 50 bytes"
    )


def test_a_script_without_calls_says_nothing_beside_its_value() -> None:
    assert report(ScriptEnd(b"1"), [], NAMES, 0) == ""


def test_a_flood_of_prints_is_cut() -> None:
    told = report(ScriptEnd(b"1", printed="x" * 50_000), [], NAMES, 0)

    assert len(told) < MOST_PRINTED + 100
    assert told.endswith(f"[{50_000 - MOST_PRINTED:,} more characters left out]")
