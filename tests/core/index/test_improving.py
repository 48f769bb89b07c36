"""Which parts of a model's answer about capabilities are used."""

import json
from typing import Any

import pytest

from capd.core.index.model_texts import BadAnswerError, question, revisions
from capd_protos.index import IndexEntry, Revision
from capd_protos.types import CapabilityId, CapabilityName, TapName

GIT = IndexEntry(
    CapabilityId(TapName("t"), CapabilityName("git")), "show", "Shows it", ["show the log"]
)


def answered(said: object) -> str:
    return f"Sure: ```json\n{json.dumps({'t/git': said, 't/other': {'do': 'x'}})}\n```"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"verb": "read"}, [Revision("t/git", verb="read")]),
        ({"do": " Reads\nhistory. "}, [Revision("t/git", do="Reads history")]),
        ({"use_when": ["a", "b", "c"]}, [Revision("t/git", use_when=["a", "b"])]),
        ({"verb": "show", "do": "Shows it", "use_when": ["show the log"]}, []),
        ({"verb": "Read It!", "do": 7, "use_when": "x"}, []),
        ({"verb": "x" * 99, "do": "x" * 999, "use_when": ["x" * 99, None]}, []),
        ({"do": "red \x1b[31m"}, [Revision("t/git", do="red [31m")]),
        ("words", []),
        (None, []),
        ({}, []),
    ],
)
def test_only_other_words_of_the_right_kind_count(said: Any, expected: list[Revision]) -> None:
    got = revisions(answered(said), [GIT])

    assert got == expected


@pytest.mark.parametrize("answer", ["", "I cannot.", "{", "{]}", '{"a": ' * 2000, "[1]"])
def test_an_answer_without_an_object_is_none(answer: str) -> None:
    with pytest.raises(BadAnswerError):
        revisions(answer, [GIT])


def test_a_model_is_asked_with_what_is_said_by_now() -> None:
    got = question([GIT])

    told = '{"t/git":{"verb":"show","do":"Shows it","use_when":["show the log"]}}'
    assert got.endswith(told)
