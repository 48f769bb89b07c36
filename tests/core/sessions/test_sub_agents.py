"""Which sub-agent makes a call, given the hooks that ran before it."""

import json
from collections.abc import Sequence

import pytest

from capd.core.sessions.session_keys import is_key
from capd.core.sessions.sub_agents import (
    MOST_AGENTS,
    MOST_CALLS,
    AgentId,
    SubAgents,
    agent_key,
    agent_of,
)
from capd_protos.types import SessionKey

A, B = AgentId("a1"), AgentId("b2")


def meta(use: str) -> bytes:
    return json.dumps({"claudecode/toolUseId": use, "progressToken": 3}).encode()


def after(*events: Sequence[str]) -> SubAgents:
    agents = SubAgents()
    for kind, *rest in events:
        match kind:
            case "start":
                agents.start(AgentId(rest[0]))
            case "stop":
                agents.stop(AgentId(rest[0]))
            case _:
                agents.announce(rest[0], AgentId(rest[1]))
    return agents


@pytest.mark.parametrize(
    ("events", "called", "caller"),
    [
        ([], meta("u1"), ""),
        ([("start", A)], meta("u1"), ""),
        ([("start", A), ("call", "u1", A)], meta("u1"), A),
        ([("start", A), ("call", "u1", A)], meta("u2"), ""),
        ([("start", A), ("start", B), ("call", "u1", A), ("call", "u2", B)], meta("u1"), A),
        ([("start", A), ("start", B), ("call", "u1", A), ("call", "u2", B)], meta("u2"), B),
        # Its start was lost.
        ([("call", "u1", A)], meta("u1"), A),
        ([("call", "u1", A), ("call", "u1", B)], meta("u1"), B),
        ([("call", "u1", A), ("stop", A)], meta("u1"), ""),
        ([("call", "u1", A), ("stop", B)], meta("u1"), A),
        ([("call", "", A)], meta(""), ""),
        ([("call", "u" * 257, A)], meta("u" * 257), ""),
        ([("call", "u1", A)], b"", ""),
        ([("call", "u1", A)], b"{}", ""),
        ([("call", "u1", A)], b"[]", ""),
        ([("call", "u1", A)], b'{"claudecode/toolUseId": 5}', ""),
    ],
)
def test_a_call_is_the_agents_that_announced_it(
    events: list[Sequence[str]], called: bytes, caller: str
) -> None:
    agents = after(*events)

    assert agents.caller(called) == caller


def test_of_too_many_agents_the_one_that_was_idle_longest_is_over() -> None:
    agents = SubAgents()
    for number in range(MOST_AGENTS):
        assert agents.start(AgentId(f"n{number}")) == []
    agents.announce("u1", AgentId("n0"))

    over = agents.start(AgentId("one-more"))

    assert over == ["n1"]
    assert AgentId("n0") in agents
    assert AgentId("n1") not in agents
    assert agents.caller(meta("u1")) == "n0"


def test_only_the_newest_calls_are_remembered() -> None:
    agents = SubAgents()
    for number in range(MOST_CALLS + 1):
        agents.announce(f"u{number}", A)

    assert [agents.caller(meta(use)) for use in ("u0", "u1", f"u{MOST_CALLS}")] == ["", A, A]


def test_an_agent_is_over_once() -> None:
    agents = after(("start", A))

    assert [agents.stop(A), agents.stop(A), bool(agents)] == [True, False, False]


@pytest.mark.parametrize(
    ("said", "agent"),
    [
        ("a49c9206242b23d33", "a49c9206242b23d33"),
        ("", ""),
        ("${agent_id}", ""),
        ("x" * 65, ""),
        ("a b", ""),
        ("a\n", ""),
        ("../a", ""),
    ],
)
def test_what_is_no_id_is_nobodys(said: str, agent: str) -> None:
    assert agent_of(said) == agent


@pytest.mark.parametrize("conversation", ["claude-9", "x" * 128])
def test_the_key_of_an_agent_is_a_key(conversation: str) -> None:
    key = agent_key(SessionKey(conversation), AgentId("a" * 64))

    assert is_key(key)
    assert key.endswith(":" + "a" * 64)
