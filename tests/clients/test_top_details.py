"""The details of a selected row in `capd top`, and its lines for events."""

from typing import Any, get_args

import msgspec
import pytest

from capd_client.top.details import (
    approval_details,
    approvals_line,
    decision_details,
    event_words,
    server_details,
    session_details,
)
from capd_client.top.rows import decision_rows
from capd_protos import (
    curator,
    definitions,
    embedder,
    finder,
    index,
    registry,
    settings,
    supervisor,
)

DECISION: dict[str, Any] = {
    "session": "zed-1",
    "at": "?",
    "fingerprint": "0afd",
    "outcome": "activate",
    "name": "git",
    "reason": "whole_trigger",
}


def test_a_session_is_told_with_what_is_on_and_how_it_came() -> None:
    session = {
        "key": "zed-1",
        "client": "zed",
        "pid": 7,
        "project": "/src",
        "cap": 4,
        "calls": 1,
        "surface": 6,
        "available": 40,
        "mode": "dynamic",
        "active": [{"kind": "capability", "tap": "starter", "name": "git\x1b[2J"}],
    }

    assert session_details(session) == [
        "zed-1: zed, process 7",
        "project: /src",
        "MCP active: 1/4 (git\\x1b[2J); 6 of 40 tools listed (dynamic)",
        "1 call that succeeded",
        "  on: starter/git\\x1b[2J",
    ]


def test_a_session_is_told_with_its_scripts_and_what_they_called() -> None:
    script = {
        "at": None,
        "outcome": "result",
        "ms": 61.4,
        "calls": [
            {"tool": "git__log", "outcome": "result", "count": 12, "ms": 20.0},
            {"tool": "git__show", "outcome": "refused", "count": 1, "ms": 0.0},
        ],
    }
    nothing: dict[str, object] = {"at": None, "outcome": "error", "ms": 3.0, "calls": []}

    assert session_details({"key": "zed-1"}, [script, nothing])[-2:] == [
        "  script --:--:--: result in 61 ms: git__log x12, git__show refused",
        "  script --:--:--: error in 3 ms: no calls",
    ]


def test_a_server_is_told_with_its_last_error() -> None:
    server = {
        "name": "db",
        "state": "failed",
        "scope": "project",
        "tools": 0,
        "restarts": 3,
        "leases": [],
        "last_error": "no such configuration",
    }

    assert server_details(server) == [
        "db: failed, 0 tools, shared by project",
        "process none, up ?, restarted 3 times",
        "held by: nobody",
        "last error: no such configuration",
    ]


def test_a_decision_is_told_with_its_reasons() -> None:
    why = {
        "top": [{"name": "git", "score": 0.9}],
        "why": "the message is a trigger of git",
        "came": "it was switched on",
        "next": ["nothing to do"],
    }

    assert decision_details(DECISION, why) == [
        "--:--:--  zed-1  activate git (whole_trigger)",
        "scores: git 0.90",
        "why: the message is a trigger of git",
        "then: it was switched on",
        "next: nothing to do",
    ]
    assert decision_details(DECISION, None) == ["--:--:--  zed-1  activate git (whole_trigger)"]


def test_decisions_are_rows_the_newest_first_and_none_comes_twice() -> None:
    other = {**DECISION, "fingerprint": "0bfe", "outcome": "abstain", "name": ""}

    rows = decision_rows({"decisions": [DECISION, other, other]})

    assert [cells for _, cells in rows] == [
        ("--:--:--", "zed-1", "abstain", "", "whole_trigger"),
        ("--:--:--", "zed-1", "activate", "git", "whole_trigger"),
    ]


@pytest.mark.parametrize(
    ("topic", "event", "words"),
    [
        ("index.tools", {"tools": 7, "servers": 2}, "7 tools of 2 servers can be found"),
        ("server.exited", {"name": "db", "reason": "code 3"}, "db ended: code 3"),
        ("server.exited", {"type": "server.exited", "name": "db"}, "name=db"),
        ("later.news", {"name": "{x}\x1b"}, "name={x}\\x1b"),
    ],
)
def test_an_event_is_told_in_words_with_its_topic(
    topic: str, event: dict[str, Any], words: str
) -> None:
    assert event_words(topic, event) == f"{words} ({topic})"


def published() -> list[type[msgspec.Struct]]:
    """Return every event that an actor of the daemon may publish."""
    return [
        event
        for module in (
            curator,
            definitions,
            embedder,
            finder,
            index,
            registry,
            settings,
            supervisor,
        )
        for event in (get_args(module.Event) or (module.Event,))
    ]


@pytest.mark.parametrize("event", published(), ids=lambda event: event.__name__)
def test_every_event_has_words_for_a_person(event: type[msgspec.Struct]) -> None:
    facts: dict[str, object] = dict.fromkeys(event.__struct_fields__, "x")
    if "capability" in facts:
        facts["capability"] = {"tap": "mine", "name": "git"}
    topic = str(event.__struct_config__.tag)

    told = event_words(topic, {"type": topic, **facts})

    assert told.endswith(f" ({topic})")
    assert "=" not in told


CALL = {
    "number": 3,
    "server": "github",
    "tool": "delete_repo",
    "arguments": '{"name":"x\x1b"}',
    "hint": "destructive",
    "client": "zed",
    "project": "",
    "rule": "*:destructive",
    "place": "[policy]",
    "until": 90.0,
}


def test_a_call_that_waits_is_told_with_the_keys_that_answer_it() -> None:
    assert approvals_line([]) == ""
    assert approvals_line([CALL, CALL]) == (
        "waiting for your approval: github:delete_repo and 1 more - a shows and answers it"
    )
    assert approval_details(CALL, 60.0) == [
        "3: github:delete_repo",
        'arguments: {"name":"x\\x1b"}',
        "its server says of what it changes: destructive",
        "called by zed in no project",
        "asked by the rule '*:destructive' in [policy]",
        "refused in 30 s",
        "1 once   2 for this session   3 always   0 refuse   escape: later",
    ]


def test_an_event_without_facts_is_its_topic() -> None:
    assert event_words("later.news", {"type": "later.news"}) == "later.news"
