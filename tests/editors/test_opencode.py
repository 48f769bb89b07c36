"""Real opencode: messages activate tools, and unused tools are removed again."""

import contextlib
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from whole_daemon import wait_for

from .lab import MESSAGE, SUBJECTS, TOOL, Lab, OpencodeServer, capability_tools, following

pytestmark = pytest.mark.clients

PREFIX = "capd_"


def script(project: Path) -> list[dict[str, Any]]:
    # A model that takes its time: what was not in its first request is in its second.
    wait = {"tool": "^bash$", "args": {"command": "sleep 2", "description": "wait"}}
    log = {"repo_path": str(project), "max_count": 3}
    return [wait, {"tool": "git__git_log$", "args": log}, {"text": "three commits"}]


@pytest.fixture
def lab(opencode: Path, start_lab: Callable[..., Lab], tmp_path: Path) -> Lab:
    made = start_lab(script(tmp_path / "harbour"))
    made.add_opencode(opencode)
    # What is proved is what opencode does, not how fast this machine is at this moment.
    made.env["CAPD_HOOK_BUDGET"] = "5"
    return made


def results(body: dict[str, Any]) -> str:
    return json.dumps([message for message in body["messages"] if message["role"] == "tool"])


def test_the_prompt_alone_brings_the_right_tools_to_the_model(lab: Lab) -> None:
    lab.set_mode("dynamic")
    lab.start_warm()
    lab.install("opencode")

    printed = lab.run("opencode", "run", MESSAGE)

    assert "three commits" in printed
    first, second, third = lab.model.bodies()
    git = {"git__git_status", "git__git_log", "git__git_show", "git__git_branch"}
    diffs = {"git__git_diff", "git__git_diff_staged", "git__git_diff_unstaged"}
    # `run` starts its servers after the message was sent: they may need more than the
    # plugin's budget. Before the vectors of git's tools are there, all of them are listed.
    at_first, then = capability_tools(first, PREFIX), capability_tools(second, PREFIX)
    assert not at_first or at_first >= git | diffs
    assert then >= git | diffs
    assert [name for name in at_first | then if not name.startswith("git__")] == []
    assert all(subject in results(third) for subject in SUBJECTS)


def test_what_the_user_says_reaches_the_first_request_where_the_list_is_not_sent_anew(
    lab: Lab,
) -> None:
    lab.start_warm()
    lab.install("opencode")
    lab.model.go_on(following(lab.project))

    with (
        lab.home.shim("another", cwd=lab.project),
        contextlib.closing(OpencodeServer(lab)) as opencode,
    ):
        assert lab.home.ask("enable", name="git", session="another")["ok"]
        said = opencode.say(MESSAGE)

    first, last = lab.model.bodies()
    assert said == "three commits"
    # Where opencode has listed again in time, the tools are named, and else how each is called.
    told = json.dumps(first["messages"])
    assert f"- {TOOL}(" in told or re.search(rf"its tools are listed now: [^.]*{TOOL}", told)
    assert all(subject in results(last) for subject in SUBJECTS)


@pytest.mark.parametrize("daemon", ["down", "hung"])
def test_a_daemon_that_is_down_or_hangs_is_nothing_that_the_user_sees(
    lab: Lab, daemon: str, record_property: Callable[[str, object], None]
) -> None:
    command = ("opencode", "run", MESSAGE)
    lab.model.go_on([{"text": "hello"}])
    lab.run(*command)  # The first run of all sets up its folders.
    plain, without = lab.show(*command)
    running = lab.start_warm()
    lab.install("opencode")
    lab.run(*command)
    if daemon == "down":
        lab.env["CAPD_NO_START"] = "1"
        running.kill()
        running.wait()
    else:
        running.send_signal(signal.SIGSTOP)

    seen, seconds = lab.show(*command)

    record_property("seconds", {"with capd": seconds, "without": without})
    print(f"opencode, the daemon {daemon}: {seconds} s, without capd {without} s")
    assert "hello" in seen
    assert seen == plain


def test_the_daemon_is_killed_between_two_turns_and_the_second_works(lab: Lab) -> None:
    lab.set_mode("dynamic")
    daemon = lab.start_warm()
    lab.install("opencode")
    with contextlib.closing(OpencodeServer(lab)) as opencode:
        assert opencode.say(MESSAGE) == "three commits"
        wait, call, _ = script(lab.project)
        # Two tool results are in the conversation already.
        lab.model.go_on([{"text": "unused"}, {"text": "unused"}, wait, call, {"text": "the same"}])
        daemon.kill()
        daemon.wait()
        # The shim starts another, which loads the model while the user reads the answer.
        wait_for(lab.is_ready)

        said = opencode.say(MESSAGE)

        assert said == "the same"
        last = lab.model.bodies()[-1]
        assert "git__git_log" in capability_tools(last, PREFIX)
        assert all(results(last).count(subject) == 2 for subject in SUBJECTS)
        assert lab.home.ask("status")["daemon"]["pid"] != daemon.pid
