"""Whatever is disconnected, nothing remains and nobody else is affected."""

import os
import signal
from pathlib import Path

import pytest

from whole_daemon import Home, pids_with, wait_for

TWO_SECONDS = 2.0


def test_a_killed_daemon_leaves_no_server_and_no_double_forked_grandchild(
    home: Home, evil_server: list[str]
) -> None:
    modes = "ignore_term,double_fork,sleep"
    home.capability("evil", [*evil_server, "--mode", modes, "--tag", home.tag])
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="evil")
    wait_for(lambda: len(pids_with(f"{home.tag}-grandchild")) == 1)
    assert len(pids_with(home.tag)) >= 2

    daemon.kill()
    daemon.wait()

    wait_for(lambda: pids_with(home.tag) == [], TWO_SECONDS)
    editor.process.kill()
    editor.leave()


def test_a_killed_daemon_costs_a_session_none_of_its_tools(home: Home) -> None:
    home.plain("talk")
    daemon = home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    listed = [tool["name"] for tool in editor.tools()]
    assert "talk__echo" in listed
    wait_for(lambda: list((home.folder / "state" / "sessions").glob("*.session")))

    daemon.kill()
    daemon.wait()
    home.start()

    assert [tool["name"] for tool in editor.tools()] == listed
    result = editor.call("talk__echo", {"text": "still here"})
    assert result["content"][0]["text"].endswith(" still here")
    editor.leave()


def test_a_daemon_killed_in_the_middle_of_a_start_leaves_nothing(
    home: Home, evil_server: list[str]
) -> None:
    home.capability("slow", [*evil_server, "--mode", "hang_init,double_fork", "--tag", home.tag])
    daemon = home.start()
    enabling = home.shim("one")
    enabling._write(  # the answer never comes
        {
            "jsonrpc": "2.0",
            "id": 99,
            "method": "tools/call",
            "params": {"name": "capability", "arguments": {"action": "enable", "name": "slow"}},
        }
    )
    wait_for(lambda: pids_with(f"{home.tag}-grandchild"))

    daemon.kill()
    daemon.wait()

    wait_for(lambda: pids_with(home.tag) == [], TWO_SECONDS)
    enabling.process.kill()
    enabling.leave()


def test_a_server_that_cannot_start_says_why_and_others_go_on(home: Home) -> None:
    home.plain("talk")
    home.capability("broken", ["/nonexistent/server"])
    home.capability("crashing", ["sh", "-c", "echo no licence found >&2; exit 3"])
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    before = home.servers()

    missing = home.ask("enable", session="one", name="broken")
    crashed = home.ask("enable", session="one", name="crashing")

    assert missing["ok"] is False
    assert "/nonexistent/server is not an executable file" in missing["text"]
    assert crashed["ok"] is False
    assert "exited with code 3" in crashed["text"]
    assert "no licence found" in crashed["text"]
    assert [s["pid"] for s in home.servers()] == [s["pid"] for s in before]
    assert editor.call("talk__shout", {"text": "on"})["content"][0]["text"].endswith("ON")
    assert [e["name"] for e in home.ask("sessions")["sessions"][0]["active"]] == ["talk"]
    editor.leave()


def test_a_call_during_which_its_server_dies_has_an_unknown_outcome(
    home: Home, evil_server: list[str]
) -> None:
    home.capability("dying", [*evil_server, "--mode", "die_in_call", "--tag", home.tag])
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="dying")

    result = editor.call("dying__echo", {"x": "1"})

    assert result["isError"] is True
    assert result["_meta"]["capd/outcome"] == "outcome_unknown"
    assert "check before repeating" in result["content"][0]["text"]
    editor.leave()


def test_a_second_daemon_on_one_folder_is_refused_and_the_first_goes_on(home: Home) -> None:
    first = home.start()

    second = home.capd("daemon", "run")

    assert second.returncode == 1
    assert f"pid {first.pid}" in second.stderr
    assert "capd stop" in second.stderr
    assert home.ask("status")["daemon"]["pid"] == first.pid


def test_a_tap_file_with_a_syntax_error_is_told_with_its_line_and_the_rest_works(
    home: Home,
) -> None:
    home.plain("talk")
    home.plain("wrong")
    (home.folder / "tap/capabilities/wrong/config.toml").write_text('triggers = [\n "a"\n "b"\n]\n')
    home.start()

    caps = {c["name"]: c for c in home.ask("caps")["capabilities"] if c["tap"] == "mine"}
    (tap,) = [t for t in home.ask("status")["taps"] if t["name"] == "mine"]

    assert caps["talk"]["routable"] is True
    assert caps["wrong"]["routable"] is False
    assert "config.toml" in caps["wrong"]["reason"]
    assert [(f["path"], f["line"]) for f in tap["findings"]] == [
        ("capabilities/wrong/config.toml", 3)
    ]


def test_a_tap_that_is_broken_by_an_edit_keeps_its_last_good_state(home: Home) -> None:
    home.plain("talk")
    home.start()
    moved = home.folder / "elsewhere"
    (home.folder / "tap").rename(moved)

    taps = {tap["name"]: tap for tap in home.ask("reload")["taps"]}
    status = home.capd("status")

    assert taps["mine"]["routable"] == 1
    assert "tap mine" in taps["mine"]["error"]
    assert status.returncode == 4
    moved.rename(home.folder / "tap")


@pytest.mark.model
@pytest.mark.real
def test_a_killed_embedder_costs_decisions_only_and_comes_back(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    # With the pid 0 the tests themselves would get the signal.
    model = wait_for(
        lambda: (m := home.ask("status")["embedder"])["state"] == "ready" and m["pid"] and m
    )

    os.kill(model["pid"], signal.SIGKILL)
    result = editor.call("talk__echo", {"text": "still here"})
    abstained = home.ask("turn", session="one", text="what is new in the garden today")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    recovered = home.ask("turn", session="one", text="please run talk")

    assert result["content"][0]["text"].endswith("still here")
    assert (abstained["outcome"], abstained["reason"]) == ("abstain", "model_not_ready")
    assert (recovered["outcome"], recovered["reason"]) == ("abstain", "already_active")
    editor.leave()


@pytest.mark.model
@pytest.mark.real
def test_an_embedder_that_hangs_is_ended_and_another_one_answers(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    # With the pid 0 the tests themselves would get the signal.
    model = wait_for(
        lambda: (m := home.ask("status")["embedder"])["state"] == "ready" and m["pid"] and m
    )

    os.kill(model["pid"], signal.SIGSTOP)
    abstained = home.ask("turn", session="one", text="what is new in the garden today")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready", 60.0)
    recovered = home.ask("turn", session="one", text="please run talk")

    assert abstained["reason"] == "model_not_ready"
    assert recovered["name"] == "talk"
    assert home.ask("status")["embedder"]["pid"] != model["pid"]
    editor.leave()


@pytest.mark.model
@pytest.mark.real
def test_a_message_is_in_no_file_and_no_log(home: Home) -> None:
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    secret_words = "xylophone marmalade talk something for me please"

    home.ask("turn", session="one", text=secret_words)
    editor.leave()

    assert "message_routed" in home.log()
    texts = [path.read_bytes() for path in Path(home.folder).rglob("*") if path.is_file()]
    assert not [text for text in texts if b"xylophone" in text]
