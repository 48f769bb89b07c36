"""A session of the library: sent and received lines, and how each request ends."""

import json
from typing import Any

import pytest

from capd_client.agent.errors import (
    CapdError,
    ClosedError,
    NoDaemonError,
    NotSentError,
    OutcomeUnknownError,
    ServerError,
)
from capd_client.agent.link import AgentFacts, Link

Json = dict[str, Any]

ENV = {"TOKEN": "t", "STRAY": "\udcff", "OTHER": "o"}
FACTS = AgentFacts("agent", "1", 7, "/src", "/src", session="mine", parent="above", env=ENV)


def lines(link: Link) -> list[Json]:
    return [json.loads(line) for line in link.output().splitlines()]


def say(link: Link, *messages: Json) -> dict[int, Json | CapdError]:
    text = b"".join(json.dumps(each).encode() + b"\n" for each in messages)
    return {each.key: each.outcome for each in link.take(text)}


def welcome(pid: int = 1, *, resumed: bool = False, **more: Any) -> Json:
    frame = {"capd": "welcome", "session": "mine", "resume": f"r{pid}", "resumed": resumed}
    return {**frame, "daemon": {"pid": pid}, **more}


def greeted(link: Link, pid: int = 1) -> Link:
    """Connect, and answer the handshake."""
    link.connected()
    say(link, welcome(pid))
    (initialize,) = [each for each in lines(link) if each.get("method") == "initialize"]
    say(link, {"jsonrpc": "2.0", "id": initialize["id"], "result": {}})
    return link


def asked(link: Link, method: str = "tools/call") -> int:
    return link.ask(method, {})


def test_the_hello_says_who_is_there_and_the_parent_once() -> None:
    link = Link(FACTS)
    link.connected()
    (first,) = lines(link)
    say(link, welcome())
    link.lost("gone")

    link.connected()

    hello: Json = {"capd": "hello", "protocol": 1, "role": "mcp"}
    hello["client"] = {"name": "agent", "version": "1", "pid": 7}
    places = {"cwd": "/src", "project": "/src", "session": "mine"}
    assert first == {**hello, **places, "parent": "above", "dispatched": True}
    (second,) = lines(link)[-1:]
    assert second == {**hello, **places, "resume": "r1", "dispatched": True}


def test_only_what_is_asked_for_of_the_environment_is_sent() -> None:
    link = Link(FACTS)
    link.connected()
    lines(link)

    say(link, welcome(want_env=["TOKEN", "STRAY", "MISSING", 7]))

    assert lines(link)[0] == {"capd": "env", "env": {"TOKEN": "t"}}


def test_a_request_waits_until_the_session_is_open() -> None:
    link = Link(FACTS)
    key = asked(link, "tools/list")

    greeted(link)

    request = {"jsonrpc": "2.0", "id": key, "method": "tools/list", "params": {}}
    assert lines(link) == [{"jsonrpc": "2.0", "method": "notifications/initialized"}, request]


def test_a_result_and_an_error_settle_their_own_request() -> None:
    link = greeted(Link(FACTS))
    one, two = asked(link), asked(link)

    settled = say(
        link,
        {"jsonrpc": "2.0", "id": two, "error": {"code": -32602, "message": "no"}},
        {"jsonrpc": "2.0", "id": one, "result": {"content": []}},
        {"jsonrpc": "2.0", "id": one, "result": {"content": ["a second one"]}},
    )

    assert settled[one] == {"content": []}
    assert isinstance(settled[two], ServerError)
    assert str(settled[two]) == "no"


def test_bytes_may_come_in_any_pieces() -> None:
    link = greeted(Link(FACTS))
    key = asked(link)
    text = json.dumps({"jsonrpc": "2.0", "id": key, "result": {"é": 1}}, ensure_ascii=False)

    settled = [each for byte in (text + "\n").encode() for each in link.take(bytes([byte]))]

    assert [(each.key, each.outcome) for each in settled] == [(key, {"é": 1})]


def test_what_was_dispatched_when_the_daemon_died_may_have_run_and_the_rest_is_sent_again() -> None:
    link = greeted(Link(FACTS))
    ran, did_not = asked(link), asked(link)
    say(link, {"capd": "dispatched", "id": ran})
    lines(link)

    settled = {each.key: each.outcome for each in link.lost("gone")}

    greeted(link, pid=2)
    assert isinstance(settled[ran], OutcomeUnknownError)
    assert list(settled) == [ran]
    assert [each.get("id") for each in lines(link)][-1] == did_not


def test_a_request_that_meets_three_dying_daemons_is_given_up() -> None:
    link = Link(FACTS)
    key = asked(link)
    settled = []
    for pid in (1, 2, 3):
        greeted(link, pid)

        settled.append([each.key for each in link.lost("gone")])

    assert settled == [[], [], [key]]


def test_a_session_that_was_resumed_needs_no_handshake() -> None:
    link = greeted(Link(FACTS))
    key = asked(link)
    link.lost("gone")
    link.connected()
    lines(link)

    say(link, welcome(resumed=True))

    assert [each["id"] for each in lines(link)] == [key]


@pytest.mark.parametrize(
    ("code", "phase"),
    [("stopping", "greeting"), ("session_in_use", "greeting"), ("bad_hello", "over")],
)
def test_some_refusals_pass_and_others_end_the_session(code: str, phase: str) -> None:
    link = Link(FACTS)
    key = asked(link)
    link.connected()

    settled = say(link, {"capd": "refused", "code": code, "message": "not today"})

    assert (link.phase, link.is_dropped) == (phase, True)
    expected = {} if phase == "greeting" else {key: "not today"}
    assert {key: str(each) for key, each in settled.items()} == expected


def test_a_token_that_is_refused_is_left_out() -> None:
    link = greeted(Link(FACTS))
    link.lost("gone")
    link.connected()
    lines(link)
    say(link, {"capd": "refused", "code": "resume_refused", "message": "no"})
    link.lost("refused")

    link.connected()

    assert "resume" not in lines(link)[0]


def test_a_daemon_that_is_stopped_fails_what_waits_and_not_the_session() -> None:
    link = greeted(Link(FACTS))
    running, waiting = asked(link), asked(link)
    say(link, {"capd": "dispatched", "id": running})
    said = say(link, {"capd": "closing", "reason": "bye", "reconnect": False})

    settled = {each.key: each.outcome for each in link.lost("it closed the connection")}

    assert (said, link.phase, link.is_stopped) == ({}, "apart", True)
    assert isinstance(settled[running], OutcomeUnknownError)
    assert isinstance(settled[waiting], NoDaemonError)
    assert str(settled[waiting]) == "capd was stopped; start it with: capd daemon start"


def test_what_a_stopped_daemon_answers_before_it_goes_is_heard() -> None:
    link = greeted(Link(FACTS))
    key = asked(link)
    say(link, {"capd": "closing", "reason": "bye", "reconnect": False})

    settled = say(link, {"jsonrpc": "2.0", "id": key, "result": {"n": 1}})

    assert settled == {key: {"n": 1}}


def test_a_session_goes_on_with_the_daemon_that_is_started_after_a_stop() -> None:
    link = greeted(Link(FACTS))
    say(link, {"capd": "closing", "reason": "bye", "reconnect": False})
    link.lost("it closed the connection")
    key = asked(link)

    greeted(link, pid=2)

    assert (link.is_stopped, say(link, {"id": key, "result": {}})) == (False, {key: {}})


@pytest.mark.parametrize("arguments", [{"a": {1}}, {"a": float("nan")}, {"a": "\ud83d"}])
def test_what_is_not_json_is_not_sent(arguments: Json) -> None:
    link = greeted(Link(FACTS))
    lines(link)

    with pytest.raises(NotSentError, match="not JSON"):
        link.ask("tools/call", arguments)

    assert lines(link) == []


def test_who_does_not_wait_any_longer_says_so_to_the_daemon() -> None:
    link = greeted(Link(FACTS))
    key = asked(link)
    lines(link)

    link.drop(key)

    (cancelled,) = lines(link)
    assert (cancelled["method"], cancelled["params"]["requestId"]) == (
        "notifications/cancelled",
        key,
    )
    assert say(link, {"jsonrpc": "2.0", "id": key, "result": {}}) == {}


def test_what_servers_ask_is_answered_with_what_this_client_is() -> None:
    link = greeted(Link(FACTS))
    lines(link)

    say(
        link,
        {"jsonrpc": "2.0", "id": "a", "method": "ping"},
        {"jsonrpc": "2.0", "id": "b", "method": "sampling/createMessage"},
        {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
    )

    ping, sampling = lines(link)
    assert ping == {"jsonrpc": "2.0", "id": "a", "result": {}}
    assert sampling["error"]["code"] == -32601
    assert link.changes == 2


@pytest.mark.parametrize(
    "garbage", [b"[]\n", b"no\n", b'{"jsonrpc":"2.0"}\n', b"[" * 20000 + b"\n"]
)
def test_what_is_not_capd_is_left_alone(garbage: bytes) -> None:
    link = Link(FACTS)
    link.connected()

    link.take(garbage)

    assert (link.is_dropped, link.trouble) == (True, "what listens at the socket is not capd")


def test_a_closed_session_says_goodbye_and_takes_nothing_more() -> None:
    link = greeted(Link(FACTS))
    key = asked(link, "tools/list")
    lines(link)

    settled = {each.key: each.outcome for each in link.end()}

    assert isinstance(settled[key], ClosedError)
    assert lines(link) == [{"capd": "goodbye"}]
    with pytest.raises(ClosedError):
        asked(link)
