"""`capd acp` passes messages on unchanged, except that it adds capd's server and context."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd_client.acp.dialogue import AgentLine, Dialogue, Prompt

Json = dict[str, Any]

SHIM = ["/usr/bin/python3", "-I", "-S", "/opt/capd/launch.py"]


def dialogue() -> Dialogue:
    return Dialogue(SHIM, {"CAPD_HOME": "/h"})


def line(message: Json) -> bytes:
    # As an editor writes it, which is not as Python does.
    return (
        json.dumps(message, indent=None, separators=(", ", ": "), ensure_ascii=False).encode()
        + b"\n"
    )


def request(method: str, key: int | str = 1, **params: Any) -> bytes:
    return line({"jsonrpc": "2.0", "id": key, "method": method, "params": params})


def opening(talk: Dialogue, method: str = "session/new", **more: Any) -> Json:
    """Return the params of a request to open a session, as the agent reads them."""
    passing = talk.from_editor(request(method, cwd="/src", **more))
    params: Json = json.loads(passing.line)["params"]
    return params


def key_of(params: Json) -> str:
    (server,) = [each for each in params["mcpServers"] if each["name"] == "capd"]
    (key,) = [each["value"] for each in server["env"] if each["name"] == "CAPD_SESSION"]
    return str(key)


def opened(talk: Dialogue, session: str = "s1", key: int | str = 1, **more: Any) -> str:
    """Open a session, answered with the id `session`; return the key that capd knows it by."""
    params = json.loads(talk.from_editor(request("session/new", key, mcpServers=[], **more)).line)
    talk.from_agent(line({"jsonrpc": "2.0", "id": key, "result": {"sessionId": session}}))
    return key_of(params["params"])


def said(talk: Dialogue, *blocks: Json, session: str = "s1") -> AgentLine:
    return talk.from_editor(request("session/prompt", 9, sessionId=session, prompt=list(blocks)))


@pytest.mark.parametrize(
    "method", ["session/new", "session/load", "session/resume", "session/fork"]
)
def test_a_session_that_is_opened_gets_capd_beside_its_own_servers(method: str) -> None:
    own = {"name": "own", "command": "/bin/own", "args": [], "env": [], "_meta": {"x": 1}}

    params = opening(dialogue(), method, mcpServers=[own], sessionId="s1")

    first, capd = params["mcpServers"]
    assert first == own
    key = key_of(params)
    assert capd == {
        "name": "capd",
        "command": SHIM[0],
        "args": SHIM[1:],
        "env": [
            {"name": "CAPD_HOME", "value": "/h"},
            {"name": "CAPD_SESSION", "value": key},
            {"name": "CAPD_ACP", "value": "1"},
        ],
    }
    assert (params["cwd"], params["sessionId"]) == ("/src", "s1")


@pytest.mark.parametrize(
    ("name", "command"), [("capd", "/x/python3"), ("tools", "/x/capd-mcp"), ("tools", "capd")]
)
def test_capd_is_never_there_twice(name: str, command: str) -> None:
    there = {
        "name": name,
        "command": command,
        "args": ["mcp"],
        "env": [{"name": "A", "value": "1"}],
    }

    params = opening(dialogue(), mcpServers=[there])

    (only,) = params["mcpServers"]
    assert [each["name"] for each in only["env"]] == ["A", "CAPD_SESSION", "CAPD_ACP"]


def test_the_key_of_an_editor_that_is_connected_itself_is_not_the_agents() -> None:
    talk = dialogue()
    env = [{"name": "CAPD_SESSION", "value": "mine"}]
    there = {"name": "capd", "command": "/x/capd-mcp", "args": [], "env": env}

    key = key_of(opening(talk, "session/load", mcpServers=[there], sessionId="s1"))

    assert key.startswith("acp-")
    assert said(talk, {"type": "text", "text": "hi"}).prompt == Prompt(key, "hi")


def test_an_agent_of_the_second_version_is_told_the_transport() -> None:
    talk = dialogue()
    talk.from_editor(request("initialize", "i", protocolVersion=2))
    talk.from_agent(line({"jsonrpc": "2.0", "id": "i", "result": {"protocolVersion": 2}}))

    params = opening(talk, mcpServers=[])

    assert params["mcpServers"][0]["type"] == "stdio"


def test_sessions_that_share_a_connection_in_their_agent_share_a_key_by_folder() -> None:
    talk = dialogue()
    talk.from_editor(request("initialize", "i", protocolVersion=1))
    agent = {"agentInfo": {"name": "OpenCode", "version": "1"}, "protocolVersion": 1}
    talk.from_agent(line({"jsonrpc": "2.0", "id": "i", "result": agent}))

    keys = [opened(talk, f"s{n}", n, cwd=cwd) for n, cwd in enumerate(("/a", "/a", "/b"))]

    assert keys[0] == keys[1] != keys[2]


def test_a_prompt_is_a_turn_of_its_own_session() -> None:
    talk = dialogue()
    first, second = opened(talk, "s1", 1), opened(talk, "s2", 2)

    prompts = [
        said(talk, {"type": "text", "text": s}, session=s).prompt for s in ("s2", "s1", "s3")
    ]

    assert first != second
    assert prompts == [Prompt(second, "s2"), Prompt(first, "s1"), None]


def test_an_answer_opens_the_session_that_was_asked_for_with_its_id_and_kind() -> None:
    talk = dialogue()
    talk.from_editor(request("session/new", 1, mcpServers=[]))
    talk.from_agent(line({"jsonrpc": "2.0", "id": "1", "result": {"sessionId": "another's"}}))
    talk.from_agent(line({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": "no"}}))

    prompt = said(talk, {"type": "text", "text": "hi"}, session="another's").prompt

    assert (prompt, talk.expects()) == (None, False)


def test_only_the_users_own_words_are_handed_over() -> None:
    talk = dialogue()
    key = opened(talk)

    passing = said(
        talk,
        {"type": "text", "text": "look at"},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
        {"type": "text", "text": "the model's", "annotations": {"audience": ["assistant"]}},
        {"type": "text", "text": "this", "annotations": {"audience": ["user", "assistant"]}},
        {"type": "image", "data": "aGk=", "mimeType": "image/png"},
    )

    assert passing.prompt == Prompt(key, "look at\nthis")


def test_what_the_model_is_told_is_the_last_block_of_the_prompt() -> None:
    talk = dialogue()
    opened(talk)
    blocks = [{"type": "text", "text": "hé"}, {"type": "image", "data": "aGk=", "mimeType": "a/b"}]
    passing = said(talk, *blocks)

    told = json.loads(passing.with_context("git is on"))

    assert told["params"]["prompt"] == [
        *blocks,
        {"type": "text", "text": "git is on"},
    ]
    assert (told["id"], told["params"]["sessionId"]) == (9, "s1")
    assert passing.with_context("") == passing.line


@pytest.mark.parametrize("method", ["session/close", "session/delete"])
def test_a_session_that_has_ended_takes_no_turns(method: str) -> None:
    talk = dialogue()
    opened(talk)

    talk.from_editor(request(method, 5, sessionId="s1"))

    assert said(talk, {"type": "text", "text": "hi"}).prompt is None


UNTOUCHED = [
    request("session/cancel", sessionId="s1"),
    request("session/set_mode", sessionId="s1", modeId="ask"),
    request("session/prompt", 9, sessionId="s1", prompt=[{"type": "text", "text": "é"}]),
    request("session/prompt", 9, sessionId="s1", prompt="no list"),
    request("session/prompt", 9, sessionId="s1", prompt=[7, {"type": "text"}, {"text": "x"}]),
    request("session/new", 1, cwd="/", mcpServers="no list"),
    line({"jsonrpc": "2.0", "id": 4, "result": {"content": "session/new"}}),
    line({"jsonrpc": "2.0", "method": "session/new", "params": [1]}),
    b'{"jsonrpc":"2.0","id":1,"method":"session/cancel","params":{"n":1.0e400,"n":2}}\r\n',
    b"not json\n",
    b"\n",
    b"[" * 100_000 + b"\n",
    b"\xff\xfe\n",
]


@pytest.mark.parametrize("each", UNTOUCHED, ids=lambda each: each[:40])
def test_what_capd_has_nothing_to_do_with_goes_through_as_it_came(each: bytes) -> None:
    talk = dialogue()
    opened(talk)

    assert talk.from_editor(each).with_context("") == each


@given(st.lists(st.sampled_from([*UNTOUCHED, b"{}\n"]) | st.binary(max_size=200), max_size=20))
def test_no_line_of_either_side_stops_the_others(lines: list[bytes]) -> None:
    talk = dialogue()
    for each in lines:
        talk.from_editor(each)
        talk.from_agent(each)

    key = opened(talk, "s9", "last")

    assert said(talk, {"type": "text", "text": "hi"}, session="s9").prompt == Prompt(key, "hi")
