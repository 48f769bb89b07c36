"""The shim hides a slow, hung or replaced daemon from its host."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capd_client.shim.handshakes import VERSION

from .conftest import FakeDaemon, Host, Link

Start = Callable[..., Host]
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESULT = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "capd"}}
NO_METHOD = {"code": -32601, "message": "no method 'server/discover'"}
META = "io.modelcontextprotocol/"
NOTHING_TO_SAY = {"content": [{"type": "text", "text": "{}"}]}


def request(key: int | str, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}


def initialize(version: str = "2025-11-25", client: str = "zed") -> dict[str, Any]:
    info = {"name": client, "version": "1"}
    return request(0, "initialize", protocolVersion=version, capabilities={}, clientInfo=info)


def discover(key: int | str = "probe", client: str = "zed") -> dict[str, Any]:
    info = {"name": client, "version": "1"}
    meta = {f"{META}protocolVersion": "2026-07-28", f"{META}clientInfo": info}
    return request(key, "server/discover", _meta=meta)


def hook(key: int | str, prompt: str = "what changed?") -> dict[str, Any]:
    arguments = {"prompt": prompt, "session_id": "c-1", "cwd": "/src"}
    return request(key, "tools/call", name="capd_turn", arguments=arguments)


def listen(key: int | str) -> dict[str, Any]:
    return request(key, "subscriptions/listen", notifications={"toolsListChanged": True})


def acknowledged(key: int | str) -> dict[str, Any]:
    params = {"notifications": {"toolsListChanged": True}, "_meta": {f"{META}subscriptionId": key}}
    return {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": params,
    }


def result(key: int | str, value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "result": value}


def error(key: int | str, value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "error": value}


def change_for(key: int | str) -> dict[str, Any]:
    return {**LIST_CHANGED, "params": {"_meta": {f"{META}subscriptionId": key}}}


def die(link: Link, times: int, daemon: FakeDaemon, expected: dict[str, Any]) -> Link:
    """Kill each daemon once it was sent `expected`; return the last one's link."""
    for number in range(times):
        link.close()
        link = daemon.accept()
        link.welcome(pid=78 + number)
        assert link.read() == expected
    return link


def learn(daemon: FakeDaemon, start_host: Start, discovered: dict[str, Any]) -> None:
    """Let a shim record the daemon's answers to both handshakes."""
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(discover())
    link.read()
    link.write({"jsonrpc": "2.0", "id": "probe", **discovered})
    host.read()
    host.write(initialize())
    link.read()
    link.write(result(0, RESULT))
    host.read()
    host.hang_up()


@pytest.fixture
def kept(home: Path) -> Path:
    return home / "state" / "handshake.json"


def keep(kept: Path, **members: Any) -> None:
    """Write the saved answers of a daemon that ran before."""
    answers = {
        "server/discover 2026-07-28": {"error": NO_METHOD},
        "initialize 2025-11-25": {"result": RESULT},
    }
    kept.parent.mkdir(mode=0o700, exist_ok=True)
    kept.write_text(json.dumps({"version": VERSION, "answers": answers, **members}))


def test_what_a_daemon_answers_to_handshakes_is_kept_for_this_user_alone(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    learn(daemon, start_host, {"error": NO_METHOD})

    assert json.loads(kept.read_text()) == {
        "version": VERSION,
        "answers": {
            "server/discover 2026-07-28": {"error": NO_METHOD},
            "initialize 2025-11-25": {"result": RESULT},
        },
    }
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert list(kept.parent.iterdir()) == [kept]


def test_an_error_that_passes_is_not_kept(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    learn(daemon, start_host, {"error": {"code": -32603, "message": "busy"}})

    answers = json.loads(kept.read_text())["answers"]
    assert answers == {"initialize 2025-11-25": {"result": RESULT}}


def test_the_latest_answer_is_the_one_that_is_kept(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    learn(daemon, start_host, {"error": NO_METHOD})
    learn(daemon, start_host, {"result": {"supportedVersions": ["2026-07-28"]}})

    answers = json.loads(kept.read_text())["answers"]
    assert answers["server/discover 2026-07-28"] == {
        "result": {"supportedVersions": ["2026-07-28"]}
    }


def test_handshakes_of_which_a_slow_daemon_says_nothing_are_answered_as_before(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    keep(kept)
    host = start_host()
    daemon.accept()

    host.write(discover(), initialize())

    assert [host.read(), host.read()] == [error("probe", NO_METHOD), result(0, RESULT)]


def test_the_daemon_hears_of_the_handshake_once_it_is_there(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    keep(kept)
    host = start_host()
    link = daemon.accept()
    host.write(initialize())
    host.read()
    host.write(INITIALIZED, request(1, "tools/list"))

    link.welcome()
    replay = link.read()
    link.write(result(replay["id"], RESULT))
    rest = [link.read(), link.read()]
    link.write(result(1, {"tools": []}))

    assert replay == {**initialize(), "id": replay["id"]}
    assert replay["id"] != 0
    assert rest == [INITIALIZED, request(1, "tools/list")]
    assert [host.read(), host.read()] == [LIST_CHANGED, result(1, {"tools": []})]


def test_a_host_that_has_not_said_initialized_is_not_notified(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    keep(kept)
    host = start_host()
    link = daemon.accept()
    host.write(initialize())
    host.read()

    link.welcome()
    replay = link.read()
    link.write(result(replay["id"], RESULT))
    host.write(request(1, "tools/list"))
    link.read()
    link.write(result(1, {"tools": []}))

    assert host.read() == result(1, {"tools": []})


def test_a_daemon_that_answers_a_handshake_late_is_not_heard_twice(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    keep(kept)
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(initialize())
    link.read()
    first = host.read()

    link.write(result(0, {**RESULT, "instructions": "late"}))
    host.write(request(1, "ping"))
    link.read()
    link.write(result(1, {}))

    assert [first, host.read()] == [result(0, RESULT), result(1, {})]


def test_a_daemon_that_kept_the_session_but_never_answered_its_handshake_gets_it_again(
    daemon: FakeDaemon, start_host: Start, kept: Path
) -> None:
    keep(kept)
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(initialize())
    link.read()
    host.read()
    link.close()

    again = daemon.accept()
    again.welcome(resumed=True)

    replay = again.read()
    assert replay == {**initialize(), "id": replay["id"]}


SPOILED: dict[str, Any] = {
    "another version": {"version": "0.0.9"},
    "no answers": {"answers": []},
    "an answer of another form": {"answers": {"initialize 2025-11-25": {"result": "x"}}},
    "another protocol": {"answers": {"initialize 2025-06-18": {"result": RESULT}}},
}


@pytest.mark.parametrize("spoiled", [*SPOILED, "not JSON", "no file", "a link"])
def test_without_a_fitting_answer_the_handshake_waits_for_the_daemon(
    daemon: FakeDaemon, start_host: Start, kept: Path, tmp_path: Path, spoiled: str
) -> None:
    keep(kept, **SPOILED.get(spoiled, {}))
    if spoiled == "not JSON":
        kept.write_text(kept.read_text()[:-1])
    elif spoiled == "no file":
        kept.unlink()
    elif spoiled == "a link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    host = start_host()
    link = daemon.accept()

    # What is due after it is answered, so it was not.
    host.write(initialize(), hook(1))
    first = host.read()
    link.welcome()
    there = link.read()
    link.write(result(0, RESULT))

    assert first == result(1, NOTHING_TO_SAY)
    assert there == initialize()
    assert host.read() == result(0, RESULT)


@pytest.mark.parametrize("client", ["claude-code", "opencode", "gemini-cli-mcp-client"])
def test_a_host_that_lists_again_is_not_kept_waiting_for_its_first_list(
    daemon: FakeDaemon, start_host: Start, kept: Path, client: str
) -> None:
    keep(kept)
    host = start_host()
    link = daemon.accept()
    host.write(initialize(client=client))
    host.read()
    host.write(INITIALIZED, request(1, "tools/list"))
    first = host.read()

    link.welcome()
    replay = link.read()
    link.write(result(replay["id"], RESULT))

    assert first == result(1, {"tools": []})
    assert link.read() == INITIALIZED
    assert host.read() == LIST_CHANGED


OWN = {"name": "tool_call", "inputSchema": {"type": "object"}}
PINNED = {"name": "notes__add", "inputSchema": {"type": "object"}}
SWITCHED_ON = {"name": "git__log", "inputSchema": {"type": "object"}}


def begin(daemon: FakeDaemon, start_host: Start, *lists: list[dict[str, Any]], **more: Any) -> None:
    """Run a session that lists these tools, one list after the other, and ends."""
    host = start_host()
    link = daemon.accept()
    link.welcome(**more)
    host.write(initialize())
    link.read()
    link.write(result(0, RESULT))
    host.read()
    for key, tools in enumerate(lists, 1):
        host.write(request(key, "tools/list"))
        link.read()
        link.write(result(key, {"tools": tools}))
        host.read()
    host.hang_up()


def first_list(host: Host, client: str = "zed") -> dict[str, Any]:
    """Return the answer to a host that lists while its daemon is slow."""
    host.write(initialize(client=client), INITIALIZED, request(1, "tools/list"))
    host.read()
    return host.read()


def test_a_new_session_has_the_tools_that_the_last_one_began_with_while_the_daemon_starts(
    daemon: FakeDaemon, start_host: Start
) -> None:
    begin(daemon, start_host, [OWN, PINNED], [OWN, PINNED, SWITCHED_ON])
    host = start_host()
    link = daemon.accept()

    first = first_list(host)
    link.welcome()
    replay = link.read()
    link.write(result(replay["id"], RESULT))

    assert first == result(1, {"tools": [OWN, PINNED]})
    assert link.read() == INITIALIZED
    assert host.read() == LIST_CHANGED


def test_what_a_resumed_session_has_is_no_new_sessions(
    daemon: FakeDaemon, start_host: Start
) -> None:
    begin(daemon, start_host, [OWN])
    begin(daemon, start_host, [OWN, SWITCHED_ON], resumed=True)
    host = start_host()
    daemon.accept()

    assert first_list(host) == result(1, {"tools": [OWN]})


def test_a_session_whose_daemon_dies_is_not_listed_what_it_began_with(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(initialize())
    link.read()
    link.write(result(0, RESULT))
    host.read()
    for key, tools in enumerate([[OWN], [OWN, SWITCHED_ON]], 1):
        host.write(request(key, "tools/list"))
        link.read()
        link.write(result(key, {"tools": tools}))
        host.read()

    link.close()
    daemon.accept()
    # What is due after the list is answered, so the list waits for the next daemon.
    host.write(request(3, "tools/list"), hook(4))

    assert host.read() == result(4, NOTHING_TO_SAY)


@pytest.mark.parametrize("spoiled", ["not JSON", "[]", "no file"])
def test_without_a_saved_list_a_host_that_lists_once_waits_for_the_daemon(
    daemon: FakeDaemon, start_host: Start, kept: Path, spoiled: str
) -> None:
    begin(daemon, start_host, [OWN])
    saved = kept.with_name("tool_lists.json")
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    saved.unlink() if spoiled == "no file" else saved.write_text(spoiled)
    host = start_host()
    daemon.accept()

    # What is due after it is answered, so it was not.
    host.write(initialize(), INITIALIZED, request(1, "tools/list"), hook(2))

    assert [host.read(), host.read()] == [result(0, RESULT), result(2, NOTHING_TO_SAY)]


def test_a_host_is_told_of_each_kind_that_it_has_listed(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    host.write(initialize())
    link.read()
    link.write(result(0, RESULT))
    host.read()
    host.write(INITIALIZED, request(1, "prompts/list"))
    assert [link.read(), link.read()] == [INITIALIZED, request(1, "prompts/list")]
    link.write(result(1, {"prompts": []}))
    host.read()
    link.close()

    again = daemon.accept()
    again.welcome(pid=78)
    replay = again.read()
    again.write(result(replay["id"], RESULT))

    prompts = {**LIST_CHANGED, "method": "notifications/prompts/list_changed"}
    assert [host.read(), host.read()] == [prompts, LIST_CHANGED]


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ],
)
def test_a_host_of_the_stateless_generation_is_answered_in_its_own_form(
    daemon: FakeDaemon, start_host: Start, method: str, member: str
) -> None:
    host = start_host()
    daemon.accept()

    host.write({**discover(1, client="claude-code"), "method": method})

    form = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert host.read() == result(1, {**form, member: []})


def test_who_listens_is_told_so_by_the_shim_or_by_a_daemon_and_never_twice(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    host.write(listen("l"))
    first = host.read()

    link.welcome()
    link.read()
    link.write(acknowledged("l"), acknowledged("of nobody"))

    assert [first, host.read()] == [acknowledged("l"), acknowledged("of nobody")]


def test_a_second_daemons_word_that_the_host_listens_is_kept_from_it(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    host.write(listen("l"))
    link.read()
    link.write(acknowledged("l"))
    first = host.read()

    last = die(link, 1, daemon, listen("l"))
    last.write(acknowledged("l"), change_for("l"))

    changes = [change_for("l")] * 2
    assert [first, host.read(), host.read()] == [acknowledged("l"), *changes]


def test_a_hook_lets_the_prompt_go_on_and_the_daemon_hears_of_it_later(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    host.write(hook(1))
    first = host.read()

    link.welcome()
    heard = link.read()
    link.write(result(1, {"content": ["late"]}), LIST_CHANGED)

    assert first == result(1, NOTHING_TO_SAY)
    assert heard == hook(1)
    assert host.read() == LIST_CHANGED


def test_a_hook_behind_capd_acp_has_nothing_to_say_and_the_daemon_hears_no_prompt_twice(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host(env={"CAPD_ACP": "1"})
    link = daemon.accept()
    link.welcome()

    host.write(hook(1), request(2, "tools/list"))

    assert host.read() == result(1, NOTHING_TO_SAY)
    assert link.read() == request(2, "tools/list")


def test_a_hook_waits_for_a_daemon_that_lives_and_not_for_one_that_hangs(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome()
    host.write(hook(1))
    turn, ping = link.read(), link.read()
    link.write(result(ping["id"], {}), LIST_CHANGED)
    assert host.read() == LIST_CHANGED

    host.write(hook(2))
    first = host.read()
    link.write(result(1, {"content": ["switched on"]}))

    assert turn == hook(1)
    assert ping == {"jsonrpc": "2.0", "id": ping["id"], "method": "ping"}
    assert first == result(2, NOTHING_TO_SAY)
    assert host.read() == result(1, {"content": ["switched on"]})


def test_a_hook_is_silent_where_no_daemon_can_be_had(start_host: Start) -> None:
    host = start_host()

    host.write(hook(1))

    assert host.read() == result(1, NOTHING_TO_SAY)


def test_who_listens_is_handed_on_from_daemon_to_daemon_and_told_to_list_again(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    host.write(listen("l"))
    assert link.read() == listen("l")

    last = die(link, 4, daemon, listen("l"))
    last.write(result("l", {"resultType": "complete"}))

    changes = [change_for("l")] * 4
    assert [host.read() for _ in range(5)] == [*changes, result("l", {"resultType": "complete"})]


def test_who_listens_is_kept_when_everything_else_is_given_up(
    daemon: FakeDaemon, start_host: Start, start_daemon: Callable[..., FakeDaemon]
) -> None:
    host = start_host(env={"CAPD_PATIENCE": "0.2", "CAPD_IDLE_RETRY": "0.02"})
    link = daemon.accept()
    link.welcome(pid=77)
    daemon.stop_listening()
    link.close()

    host.write(listen("l"), request(1, "tools/call", name="git__log"))
    refused, told = sorted([host.read(), host.read()], key=lambda each: "id" not in each)
    again = start_daemon().accept()
    again.welcome(pid=78)

    assert (refused["id"], refused["error"]["code"]) == (1, 4001)
    assert told == acknowledged("l")
    assert again.read() == listen("l")
    assert host.read() == change_for("l")


def test_a_host_that_neither_initialized_nor_listens_is_sent_nothing_of_its_own(
    daemon: FakeDaemon, start_host: Start
) -> None:
    host = start_host()
    link = daemon.accept()
    link.welcome(pid=77)
    link.close()

    again = daemon.accept()
    again.welcome(pid=78)
    host.write(request(1, "tools/list"))
    there = again.read()
    again.write(result(1, {"tools": []}))

    assert there == request(1, "tools/list")
    assert host.read() == result(1, {"tools": []})
