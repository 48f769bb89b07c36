"""All sessions that need a server share one process; it ends after the last one."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from whole_daemon import OWN_TOOLS, PLAIN_SERVER, Home, pids_with, wait_for


def test_two_editors_share_one_process_that_outlives_the_first_and_not_the_last(home: Home) -> None:
    home.plain("talk")
    home.start()
    first, second = home.shim("first"), home.shim("second")
    home.ask("enable", session="first", name="talk")
    home.ask("enable", session="second", name="talk")
    shared = home.ask("status")["servers"]

    first.leave()
    wait_for(lambda: [s["key"] for s in home.ask("sessions")["sessions"]] == ["second"])
    after_first = home.ask("status")["servers"]
    second.leave()
    wait_for(lambda: not home.servers())

    assert [server["leases"] for server in shared] == [["first", "second"]]
    assert [server["leases"] for server in after_first] == [["second"]]
    assert after_first[0]["pid"] == shared[0]["pid"]
    assert pids_with(home.tag) == []


def test_a_tool_that_was_switched_on_is_announced_listed_and_answers(home: Home) -> None:
    home.plain("talk", filters=["talk:echo"])
    home.start()
    editor = home.shim("one")

    before = [tool["name"] for tool in editor.tools()]
    home.ask("enable", session="one", name="talk")
    editor.wait_for("notifications/tools/list_changed")
    after = [tool["name"] for tool in editor.tools()]
    result = editor.call("talk__echo", {"text": "hello"})
    pid = home.servers()[0]["pid"]
    editor.leave()

    assert before == OWN_TOOLS
    assert after == [*OWN_TOOLS, "talk__echo"]
    assert result == {"content": [{"type": "text", "text": f"{pid} hello"}]}


def test_an_editor_that_is_killed_holds_nothing_any_more(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")

    editor.process.kill()

    wait_for(lambda: not home.servers())
    wait_for(lambda: pids_with(home.tag) == [])
    editor.leave()


def test_a_server_that_died_is_started_again_by_the_next_call(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    (old,) = [server["pid"] for server in home.servers()]

    os.kill(old, signal.SIGKILL)
    wait_for(lambda: not home.servers())
    result = editor.call("talk__echo", {"text": "again"})
    (new,) = [server["pid"] for server in home.servers()]
    editor.leave()

    assert new != old
    assert result["content"] == [{"type": "text", "text": f"{new} again"}]


def test_the_same_capability_enabled_twice_is_one_change(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")

    first = home.ask("enable", session="one", name="talk")
    listed = editor.tools()
    second = home.ask("enable", session="one", name="talk")

    assert first["changed"]["added"] == ["talk__echo", "talk__shout"]
    assert second["changed"] == {"added": [], "removed": []}
    assert second["ok"] is True
    assert editor.tools() == listed
    editor.leave()


def test_a_stopped_daemon_leaves_no_process_and_no_socket(home: Home) -> None:
    home.plain("talk")
    process = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")

    answer = home.ask("stop")
    code = process.wait(30)

    assert answer == {"schema": 1, "stopping": True}
    assert code == 0
    assert pids_with(home.tag) == []
    assert not Path(home.socket).exists()
    editor.process.kill()
    editor.leave()


def test_a_daemon_ends_in_order_on_sigterm(home: Home) -> None:
    process = home.start()

    process.terminate()

    assert process.wait(30) == 0
    assert '"daemon_stopped"' in home.log()


def test_commands_say_where_the_daemon_should_be_and_exit_with_3(home: Home) -> None:
    result = home.capd("status")

    assert result.returncode == 3
    assert home.socket in result.stderr
    assert "capd daemon start" in result.stderr


@pytest.mark.model
@pytest.mark.real
def test_a_prompt_hook_switches_on_what_the_user_asks_for_through_an_unlisted_tool(
    home: Home,
) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    listed = [tool["name"] for tool in editor.tools()]

    first = editor.call("capd_turn", {"prompt": "please run talk", "session_id": "abc"})
    editor.wait_for("notifications/tools/list_changed")
    second = editor.call("capd_turn", {"prompt": "please run talk", "session_id": "abc"})

    assert listed == OWN_TOOLS
    said = json.loads(first["content"][0]["text"])["hookSpecificOutput"]["additionalContext"]
    assert "talk__echo" in said
    assert second["content"][0]["text"] == "{}"
    editor.leave()


def test_a_server_is_found_on_the_login_shells_path_where_no_shell_started_the_daemon(
    home: Home, tmp_path: Path
) -> None:
    # Not in the project: programs of a project that is not trusted are not run.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "my-server").write_text(f'#!/bin/sh\nexec {sys.executable} -I {PLAIN_SERVER} "$@"\n')
    (tools / "shell").write_text(f'#!/bin/sh\nPATH={tools}:$PATH; export PATH; eval "$4"\n')
    for path in tools.iterdir():
        path.chmod(0o700)
    home.capability("talk", ["my-server", home.tag])
    home.env = {k: v for k, v in home.env.items() if k != "SHLVL"} | {"SHELL": str(tools / "shell")}
    home.start()
    editor = home.shim("one")
    wait_for(lambda: "login_path_taken" in home.log())

    answer = home.ask("enable", session="one", name="talk")

    assert answer["changed"]["added"] == ["talk__echo", "talk__shout"]
    editor.leave()


@pytest.mark.model
@pytest.mark.real
def test_a_hook_on_the_sessions_connection_is_answered_after_the_client_has_listed_again(
    home: Home,
) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    turn = {"name": "capd_turn", "arguments": {"prompt": "please run talk"}}

    editor._write({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": turn})
    editor.wait_for("notifications/tools/list_changed")
    editor._write({"jsonrpc": "2.0", "id": 51, "method": "tools/list"})
    answered = [editor._next("an answer", 30)["id"] for _ in range(2)]

    assert answered == [51, 50]
    editor.leave()
