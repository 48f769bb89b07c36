"""Real Claude Code and Codex: one request of the model makes twelve calls."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .agents import CODEX
from .lab import SUBJECTS, Lab
from .test_agents import ready, said
from .test_claude import ALLOWED

pytestmark = pytest.mark.clients

Json = dict[str, Any]

MESSAGE = "what changed in the last three commits of this repository?"
CODE = """
import asyncio
async def message(n):
    shown = await git.show(repo_path=inputs["repo"], revision=f"HEAD~{n % 3}")
    return [each for each in inputs["subjects"] if each in shown]
await asyncio.gather(*[message(n) for n in range(12)])
"""


def by_tool_call(project: Path) -> Json:
    """Return the arguments of `tool_call` for the script."""
    arguments = {"code": CODE, "inputs": {"repo": str(project), "subjects": SUBJECTS}}
    return {"name": "script_run", "arguments": arguments}


def assert_one_round_trip(lab: Lab, requests: int = 2) -> None:
    """Hold that one call of the model made twelve of git's, and that it saw what they came to."""
    bodies = lab.model.bodies()
    last = said(bodies[-1])
    assert len(bodies) == requests
    # Four times as a result, and once in the inputs.
    assert all(last.count(subject) >= 5 for subject in SUBJECTS)
    assert "- git.show x12: result, " in last
    (script,) = lab.home.ask("why")["scripts"]
    calls = [(each["tool"], each["outcome"], each["count"]) for each in script["calls"]]
    assert (script["outcome"], calls) == ("result", [("git__git_show", "result", 12)])


def test_claude_code_makes_twelve_calls_in_one_request(
    claude: Path, start_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    call = {"tool": "tool_call$", "args": by_tool_call(tmp_path / "harbour")}
    lab = start_lab([call, {"text": "three commits"}])
    lab.add_claude(claude)
    lab.start_warm()
    lab.install("claude")

    printed = lab.run("claude", "-p", MESSAGE, "--output-format", "json", *ALLOWED)

    assert json.loads(printed)["result"] == "three commits"
    assert_one_round_trip(lab)


def test_codex_makes_twelve_calls_in_one_request(
    start_lab: Callable[[list[Json]], Lab], tmp_path: Path
) -> None:
    call = {"tool": "^mcp__capd::tool_call$", "args": by_tool_call(tmp_path / "harbour")}
    lab = start_lab([call, {"text": "three commits"}])
    command = [*ready(lab, CODEX), "-m", "gpt-4.1"]

    with lab.git_at_hand():
        printed = lab.run(*command, MESSAGE)

    assert "three commits" in printed
    assert_one_round_trip(lab)
