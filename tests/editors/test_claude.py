"""Real Claude Code: the prompt alone activates the tools that it needs."""

import contextlib
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .lab import MESSAGE, SUBJECTS, TOOL, Dialogue, Lab, capability_tools, following

pytestmark = pytest.mark.clients

PREFIX = "mcp__capd__"
ALLOWED = ("--allowedTools", "mcp__capd")
STREAMS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
DIALOGUE = ("claude", "-p", *STREAMS, *ALLOWED)


def script(project: Path) -> list[dict[str, Any]]:
    log = {"repo_path": str(project), "max_count": 3}
    return [{"tool": "git__git_log$", "args": log}, {"text": "three commits"}]


@pytest.fixture
def lab(claude: Path, start_lab: Callable[..., Lab], tmp_path: Path) -> Lab:
    made = start_lab(script(tmp_path / "harbour"))
    made.add_claude(claude)
    return made


def results(body: dict[str, Any]) -> str:
    """Return the text of every tool result in a request."""
    blocks = [
        block
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
    ]
    return json.dumps([block for block in blocks if block["type"] == "tool_result"])


def test_the_prompt_alone_brings_the_call_that_the_first_answer_makes(lab: Lab) -> None:
    lab.model.go_on(following(lab.project))
    lab.start_warm()
    lab.install("claude")

    printed = lab.run("claude", "-p", MESSAGE, "--output-format", "json", *ALLOWED)

    assert json.loads(printed)["result"] == "three commits"
    first, second = lab.model.bodies()
    assert json.dumps(first["messages"]).count(f"- {TOOL}(") == 1
    assert capability_tools(second, PREFIX) == set()
    assert all(subject in results(second) for subject in SUBJECTS)


def test_the_prompt_alone_puts_the_right_tools_into_the_first_request(lab: Lab) -> None:
    lab.set_mode("dynamic")
    lab.start_warm()
    lab.install("claude")

    with lab.git_at_hand():
        printed = lab.run("claude", "-p", MESSAGE, "--output-format", "json", *ALLOWED)

    assert json.loads(printed)["result"] == "three commits"
    first, second = lab.model.bodies()
    git = {"git__git_status", "git__git_log", "git__git_show", "git__git_branch"}
    diffs = {"git__git_diff", "git__git_diff_staged", "git__git_diff_unstaged"}
    # By itself, a tool that fits a message about commits.
    fitting = {"git__git_commit"}
    assert capability_tools(first, PREFIX) - fitting == git | diffs
    assert capability_tools(second, PREFIX) - fitting == git | diffs
    assert all(subject in results(second) for subject in SUBJECTS)


def user_says(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


def test_of_the_two_hooks_one_speaks_and_the_model_is_told_once(lab: Lab) -> None:
    lab.model.go_on(following(lab.project))
    lab.start_warm()
    lab.install("claude")
    with contextlib.closing(Dialogue(lab, *DIALOGUE)) as claude:
        claude.say(user_says(MESSAGE))

        assert claude.hear("result")["result"] == "three commits"

        (session,) = lab.home.ask("sessions")["sessions"]
        decisions = lab.home.ask("status")["decisions"]
    assert session["linked_by"] == "its own connection"
    assert [each["session"] for each in decisions] == [session["key"]]
    # Where the other one speaks, its session has to be found, and that is logged.
    assert "hook_linked" not in lab.home.log()
    first, _ = lab.model.bodies()
    assert json.dumps(first["messages"]).count(f"- {TOOL}(") == 1


@pytest.mark.parametrize("daemon", ["down", "hung"])
def test_a_daemon_that_is_down_or_hangs_is_nothing_that_the_user_sees(
    lab: Lab, daemon: str, record_property: Callable[[str, object], None]
) -> None:
    command = ("claude", "-p", MESSAGE)
    lab.model.go_on([{"text": "hello"}])
    lab.run(*command)  # The first run of all sets up its folders.
    plain, without = lab.show(*command)
    running = lab.start_warm()
    lab.install("claude")
    lab.run(*command)
    if daemon == "down":
        lab.env["CAPD_NO_START"] = "1"
        running.kill()
        running.wait()
    else:
        running.send_signal(signal.SIGSTOP)

    seen, seconds = lab.show(*command)

    record_property("seconds", {"with capd": seconds, "without": without})
    print(f"Claude Code, the daemon {daemon}: {seconds} s, without capd {without} s")
    assert (seen, plain) == ("hello\n", "hello\n")


def test_the_daemon_is_killed_between_two_turns_and_the_second_works(lab: Lab) -> None:
    lab.model.go_on(following(lab.project))
    daemon = lab.start_warm()
    lab.install("claude")
    with contextlib.closing(Dialogue(lab, *DIALOGUE)) as claude:
        claude.say(user_says(MESSAGE))
        assert claude.hear("result")["result"] == "three commits"
        lab.model.go_on(following(lab.project, times=2))
        daemon.kill()
        daemon.wait()

        claude.say(user_says(MESSAGE))

        assert claude.hear("result")["result"] == "three commits"
        first, second = lab.model.bodies()
        # It was told in the first turn, and is not told again.
        assert json.dumps(first["messages"]).count(f"- {TOOL}(") == 1
        assert all(results(second).count(subject) == 2 for subject in SUBJECTS)
        assert lab.home.ask("status")["daemon"]["pid"] != daemon.pid
