"""Real opencode on capd: what the user says brings the tools, and they go again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .lab import MESSAGE, SUBJECTS, Lab, capability_tools

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
    return made


def results(body: dict[str, Any]) -> str:
    return json.dumps([message for message in body["messages"] if message["role"] == "tool"])


def test_the_prompt_alone_brings_the_right_tools_to_the_model(lab: Lab) -> None:
    lab.start_warm()
    lab.install("opencode")

    printed = lab.run("opencode", "run", MESSAGE)

    assert "three commits" in printed
    first, second, third = lab.model.bodies()
    git = {"git__git_status", "git__git_log", "git__git_show", "git__git_branch"}
    diffs = {"git__git_diff", "git__git_diff_staged", "git__git_diff_unstaged"}
    # `run` starts its servers after the message was sent: they may need more than the
    # plugin's budget.
    assert capability_tools(first, PREFIX) in (set(), git | diffs)
    assert capability_tools(second, PREFIX) == git | diffs
    assert all(subject in results(third) for subject in SUBJECTS)
