"""Real Codex, Gemini CLI, qwen and Copilot CLI: a prompt leads to the right call."""

import json
import re
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from .agents import CODEX, COPILOT, GEMINI, QWEN, Agent
from .lab import MESSAGE, SUBJECTS, TOOL, Lab, following

pytestmark = pytest.mark.clients

Json = dict[str, Any]
Start = Callable[[list[Json]], Lab]

AGENTS = (CODEX, GEMINI, COPILOT, QWEN)


def ready(lab: Lab, agent: Agent) -> list[str]:
    """Return the command of an agent that has capd; the daemon has its model, and knows git."""
    command = agent.give(lab)
    # What is proved is what an agent does, not how fast this machine is at this moment.
    lab.env["CAPD_HOOK_BUDGET"] = "4"
    lab.start_warm()
    # Codex skips a hook that its user has not trusted; here that is us.
    lab.install(agent.client, *(["--trust-hooks"] if agent is CODEX else []))
    return command


def git_log(project: Path) -> Json:
    return {"repo_path": str(project), "max_count": 3}


def by_tool_call(project: Path) -> Json:
    """Return the arguments of `tool_call` for git's log."""
    return {"name": TOOL, "arguments": git_log(project)}


def said(body: Json) -> str:
    """Return all of a request but the tools, as the model reads it."""
    return json.dumps({key: value for key, value in body.items() if key != "tools"})


def assert_proved(lab: Lab, told: str) -> None:
    """Check the model's first request for the context, and its last for the result."""
    first, *_, last = lab.model.bodies()
    assert len(re.findall(told, said(first))) == 1, said(first)[-3000:]
    assert all(subject in said(last) for subject in SUBJECTS), said(last)[-3000:]


STARTS = pytest.mark.parametrize("is_warm", [True, False], ids=["server runs", "server starts"])


def card(caller: str) -> str:
    """Return a pattern of the tool's call card, as a request has it in JSON.

    A client that lists again may have the tool on its list instead. Tools with another caller, as
    those that write have for Copilot, may come before it.
    """
    listed = "its tools are listed now: git__"
    heading = rf"(?:For this message, by {caller}\(name, arguments\)|By {caller}):"
    return rf"{listed}|{heading}(\\+n- [^\\]*)*\\+n- {TOOL}\("


@STARTS
@pytest.mark.parametrize(
    ("agent", "caller"),
    [
        # Its user allows tools one by one: what only reads has a tool of its own.
        pytest.param(COPILOT, "capd-tool_call_readonly", id="copilot"),
        # All of MCP it calls by a tool of its own, which has the name of ours.
        pytest.param(QWEN, "mcp__capd__tool_call", id="qwen"),
        pytest.param(GEMINI, "mcp_capd_tool_call", id="gemini"),
    ],
)
def test_the_first_request_has_the_call_that_the_first_answer_makes(
    start_lab: Start, tmp_path: Path, agent: Agent, caller: str, *, is_warm: bool
) -> None:
    lab = start_lab(following(tmp_path / "harbour"))
    command = ready(lab, agent)

    with lab.git_at_hand() if is_warm else nullcontext():
        printed = lab.run(*command, MESSAGE)

    assert "three commits" in printed
    assert_proved(lab, card(caller))
    assert len(lab.model.bodies()) == 2


@STARTS
@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4.1"], ids=["searching", "listing"])
def test_codex_never_lists_again_and_is_told_the_call_to_make(
    start_lab: Start, tmp_path: Path, model: str, *, is_warm: bool
) -> None:
    lab = start_lab(following(tmp_path / "harbour"))
    command = [*ready(lab, CODEX), "-m", model]

    with lab.git_at_hand() if is_warm else nullcontext():
        printed = lab.run(*command, MESSAGE)

    assert "three commits" in printed
    assert_proved(lab, card("mcp__capd__tool_call_readonly"))
    *_, last = lab.model.bodies()
    # Codex's own search finds nothing while its servers start, and is made again.
    searches = [each for each in last["input"] if each.get("type") == "tool_search_output"]
    again = len([each for each in searches if not each.get("tools")])
    # Of a model that can search, Codex keeps all tools of MCP back until it has.
    assert len(lab.model.bodies()) == (3 + again if model == "gpt-5.5" else 2)


def test_gemini_has_the_right_tools_in_its_first_request_if_its_list_changes(
    start_lab: Start, tmp_path: Path
) -> None:
    lab = start_lab(following(tmp_path / "harbour"))
    lab.set_mode("dynamic")
    command = ready(lab, GEMINI)

    with lab.git_at_hand():
        printed = lab.run(*command, MESSAGE)

    assert json.loads(printed)["response"] == "three commits"
    assert f"mcp_capd_{TOOL}" in declared(lab.model.bodies()[0])
    assert_proved(lab, "capd switched on 'git' for this message; its tools are listed now: git__")


def declared(body: Json) -> list[str]:
    """Return the names of the tools in a request to Gemini."""
    functions = [each for group in body["tools"] for each in group.get("functionDeclarations", [])]
    return [each["name"] for each in functions]


@pytest.mark.parametrize(
    ("agent", "daemon"),
    [
        *[pytest.param(each, "down", id=f"{each.client}, down") for each in AGENTS],
        # Qwen Code lists once: it waits for that, half a minute, and then says that it had none.
        *[pytest.param(each, "hung", id=f"{each.client}, hung") for each in AGENTS if each != QWEN],
    ],
)
def test_a_daemon_that_is_down_or_hangs_is_nothing_that_the_user_sees(
    start_lab: Start, agent: Agent, daemon: str, record_property: Callable[[str, object], None]
) -> None:
    lab = start_lab([{"text": "hello"}])
    command = ready(lab, agent)
    (running,) = lab.home.processes
    lab.run(*command, MESSAGE)
    if daemon == "down":
        lab.env["CAPD_NO_START"] = "1"
        running.kill()
        running.wait()
    else:
        running.send_signal(signal.SIGSTOP)

    seen, seconds = lab.show(*command, MESSAGE)

    record_property("seconds", seconds)
    print(f"{agent.client}, the daemon {daemon}: {seconds} s")
    assert "hello" in seen
    # In a path of theirs it is no word about capd.
    assert re.search(r"(?<!/)capd(?!-lab)", seen) is None, seen


@pytest.mark.parametrize(("caller", "is_run"), [("tool_call_readonly", True), ("tool_call", False)])
def test_codex_runs_a_read_only_tool_that_nobody_has_allowed_and_no_other(
    start_lab: Start, tmp_path: Path, caller: str, *, is_run: bool
) -> None:
    call = {"tool": f"^mcp__capd::{caller}$", "args": by_tool_call(tmp_path / "harbour")}
    lab = start_lab([call, {"text": "three commits"}])
    command = [*ready(lab, CODEX), "-m", "gpt-4.1"]
    unasked = next(at for at, each in enumerate(command) if "approval_mode" in each)
    del command[unasked - 1 : unasked + 1]

    with lab.git_at_hand():
        lab.run(*command, MESSAGE)

    *_, last = lab.model.bodies()
    assert all(subject in said(last) for subject in SUBJECTS) is is_run, said(last)[-3000:]
