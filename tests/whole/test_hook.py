"""A prompt hook reaches the right session within its budget, and never blocks."""

import json
import os
import signal
import subprocess
import sys

import pytest

from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model


def hook(home: Home, said: object, *, client: str = "claude") -> subprocess.CompletedProcess[str]:
    """Run `capd hook` as an editor does, from this process."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", "hook", client, "UserPromptSubmit"],
        input=json.dumps(said) if not isinstance(said, str) else said,
        env=home.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def said(home: Home, prompt: str, session: str = "conversation-1") -> dict[str, str]:
    return {
        "hook_event_name": "UserPromptSubmit",
        "prompt": prompt,
        "session_id": session,
        "cwd": str(home.folder),
    }


@pytest.mark.real
def test_a_hook_finds_its_session_by_the_program_that_started_both(home: Home) -> None:
    # Who is found is asked here, and not how fast on a machine that does other things.
    home.env["CAPD_HOOK_BUDGET"] = "4"
    home.plain("talk")
    home.start()
    editor = home.shim("one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    home.ask("enable", session="one", name="talk")  # its server is warm from here on
    home.ask("disable", session="one", name="talk")

    first = hook(home, said(home, "please run talk"))
    second = hook(home, said(home, "please run talk"))

    (session,) = home.ask("sessions")["sessions"]
    output = json.loads(first.stdout)["hookSpecificOutput"]
    assert "talk__echo" in output["additionalContext"]
    assert (second.returncode, second.stdout) == (0, "")
    assert session["client_sessions"] == ["conversation-1"]
    assert session["linked_by"] in {"common parent", "session id"}
    editor.leave()


def test_a_hook_says_nothing_where_no_daemon_runs(home: Home) -> None:
    result = hook(home, said(home, "please run talk"))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_hook_says_nothing_where_the_daemon_hangs(home: Home) -> None:
    daemon = home.start()
    daemon.send_signal(signal.SIGSTOP)

    result = hook(home, said(home, "please run talk"))

    os.kill(daemon.pid, signal.SIGCONT)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("garbage", ["", "not json", "[]", "{}", '{"prompt": 7}', "null"])
def test_a_hook_says_nothing_of_what_it_cannot_read(running_home: Home, garbage: str) -> None:
    result = hook(running_home, garbage)

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_hook_of_a_conversation_that_no_session_belongs_to_reaches_nobody(home: Home) -> None:
    home.plain("talk")
    home.start()

    result = hook(home, said(home, "please run talk"))

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert home.ask("status")["decisions"] == []
