"""Sub-agents of real clients: what one activates is its own, and ends with it."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .lab import SUBJECTS, TOOL, Dialogue, Lab, capability_tools

pytestmark = pytest.mark.clients

PREFIX = "mcp__capd__"
STREAMS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
ALLOWED = ("--allowedTools", "mcp__capd", "Agent")
DIALOGUE = ("claude", "-p", *STREAMS, *ALLOWED)
HAND_OVER = "hello, please hand this over to the harbour master"
"""A message that asks capd for nothing."""

MASTER = """\
---
name: harbour-master
description: Reads the log of the harbour.
tools: mcp__capd__capability, mcp__capd__tool_call
---
Read the log.
"""


def script(project: Path) -> list[dict[str, Any]]:
    """Return the steps of a conversation, which has the tool `Agent`, and of its sub-agent."""
    handed = {"description": "the log", "prompt": "read it", "subagent_type": "harbour-master"}
    log = {"name": TOOL, "arguments": {"repo_path": str(project), "max_count": 3}}
    return [
        {
            "either": [
                {"tool": "^Agent$", "args": {**handed, "run_in_background": False}},
                {"tool": "capd__capability$", "args": {"action": "enable", "name": "git"}},
            ]
        },
        {
            "either": [
                {"with": "^Agent$", "text": "handed over"},
                {"tool": "capd__tool_call$", "args": log},
            ]
        },
        {"text": "three commits"},
    ]


def test_what_a_sub_agent_of_claude_code_switches_on_stays_with_it(
    claude: Path, start_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    lab = start_lab(script(tmp_path / "harbour"))
    lab.add_claude(claude)
    lab.set_mode("dynamic")
    agents = lab.user / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "harbour-master.md").write_text(MASTER)
    lab.start_warm()
    lab.install("claude")
    with contextlib.closing(Dialogue(lab, *DIALOGUE)) as dialogue:
        dialogue.say({"type": "user", "message": {"role": "user", "content": HAND_OVER}})

        assert dialogue.hear("result")["result"] == "handed over"

        (session,) = lab.home.ask("sessions")["sessions"]
    bodies = lab.model.bodies()
    own = [body for body in bodies if "Agent" in {tool["name"] for tool in body["tools"]}]
    of_agent = [body for body in bodies if body not in own]
    assert [len(own), len(of_agent)] == [2, 3]
    assert all(subject in json.dumps(of_agent[-1]["messages"]) for subject in SUBJECTS)
    assert session["active"] == []
    assert all(capability_tools(body, PREFIX) == set() for body in bodies)
    enabled = [line for line in lab.home.log().splitlines() if "capability_enabled" in line]
    assert f"{session['key']}:" in enabled[-1]
