"""The nemesis checker finds each broken rule, and reports nothing else."""

import pytest

from reliability.history import Answer, Call, answer_of, violations

NONCE = "s/1"


def one(*answers: Answer, gone: bool = False) -> list[Call]:
    return [Call(NONCE, "s", list(answers), is_client_gone=gone)]


GOOD = Answer("result", NONCE)


@pytest.mark.parametrize(
    ("calls", "journal"),
    [
        (one(GOOD), [NONCE]),
        (one(Answer("not_sent")), []),
        (one(Answer("refused")), []),
        (one(Answer("outcome_unknown")), []),
        (one(Answer("outcome_unknown")), [NONCE]),
        (one(Answer("error -32602")), []),
        (one(gone=True), []),
        (one(gone=True), [NONCE]),
        (one(GOOD, gone=True), [NONCE]),
        ([], []),
    ],
)
def test_what_may_happen_is_no_violation(calls: list[Call], journal: list[str]) -> None:
    assert violations(calls, journal) == []


@pytest.mark.parametrize(
    ("calls", "journal", "said"),
    [
        (one(), [], "never answered"),
        (one(GOOD), [], "has a result, and never ran"),
        (one(GOOD), [NONCE, NONCE], "ran 2 times"),
        (one(gone=True), [NONCE, NONCE], "ran 2 times"),
        (one(Answer("not_sent")), [NONCE], "ran, and was told as not_sent: ''"),
        (one(Answer("refused")), [NONCE], "ran, and was told as refused: ''"),
        (
            one(Answer("result", "s/2")),
            [NONCE],
            "was answered with another call's result: 's/2'",
        ),
        (
            one(Answer("error -32603")),
            [],
            "ended in no outcome that there is: Answer(outcome='error -32603', text='')",
        ),
        (one(Answer("error -32602")), [NONCE], "ran, and was told as error -32602: ''"),
    ],
)
def test_a_broken_rule_is_found(calls: list[Call], journal: list[str], said: str) -> None:
    assert violations(calls, journal) == [f"{NONCE}: {said}"]


def test_two_answers_to_one_call_are_found() -> None:
    (found,) = violations(one(GOOD, GOOD), [NONCE])

    assert found.startswith("s/1: answered 2 times")


def test_an_effect_that_nobody_asked_for_is_found() -> None:
    assert violations([], ["x/1"]) == ["x/1: in the journal, and never asked for"]


def test_the_result_of_another_session_is_found() -> None:
    found = violations([Call("t/1", "s", [Answer("result", "t/1")])], ["t/1"])

    assert found == ["t/1: was answered with another session's result: 't/1'"]


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"result": {"content": [{"type": "text", "text": "n"}]}}, Answer("result", "n")),
        ({"result": {"isError": True, "_meta": {"capd/outcome": "not_sent"}}}, Answer("not_sent")),
        ({"result": {"isError": True}}, Answer("error without outcome")),
        ({"error": {"code": 4002}}, Answer("outcome_unknown", "{'code': 4002}")),
        ({"error": {"code": -32602}}, Answer("error -32602", "{'code': -32602}")),
    ],
)
def test_a_response_is_read_for_its_outcome(message: dict[str, object], answer: Answer) -> None:
    assert answer_of(message) == answer
