"""Skills of real clients: using a skill activates the capabilities that it names."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .agents import GEMINI, Agent
from .lab import SUBJECTS, TOOL, Lab

pytestmark = pytest.mark.clients

HEAD = "name: boat-log\ndescription: Reads the log of boats.\n"
UNLIKE = "please have a look at what the others did here, by the skill boat-log"
"""A message that asks for nothing but the skill."""


def write_skill(folder: Path, needs: str) -> None:
    file = folder / "boat-log/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text(f"---\n{HEAD}{needs}\n---\nRead the log.\n")


def said(body: dict[str, Any]) -> str:
    return json.dumps(body)


@pytest.fixture
def lab(start_lab: Callable[..., Lab]) -> Lab:
    made = start_lab([{"text": "nothing yet"}])
    made.set_mode("dynamic")
    # The lab's daemon has the folder of whoever runs the tests.
    made.home.env["CLAUDE_CONFIG_DIR"] = str(made.user / ".claude")
    return made


def log_of(lab: Lab) -> dict[str, Any]:
    return {"tool": f"{TOOL}$", "args": {"repo_path": str(lab.project), "max_count": 3}}


def test_claude_code_has_the_tools_of_a_skill_that_its_model_uses(lab: Lab, claude: Path) -> None:
    lab.add_claude(claude)
    write_skill(lab.user / ".claude/skills", f"allowed-tools: mcp__capd__{TOOL}")
    lab.model.go_on(
        [{"tool": "^Skill$", "args": {"skill": "boat-log"}}, log_of(lab), {"text": "seen"}]
    )
    lab.start_warm()
    lab.install("claude")

    printed = lab.run(
        *("claude", "-p", "hello, what do you think of the weather over there?"),
        *("--output-format", "json", "--allowedTools", "mcp__capd", "Skill"),
    )

    assert json.loads(printed)["result"] == "seen"
    first, second, third = lab.model.bodies()
    assert f"mcp__capd__{TOOL}" not in said({"tools": first["tools"]})
    assert f"mcp__capd__{TOOL}" in said(second)
    assert "the skill 'boat-log'" in said(second)
    assert all(subject in said(third) for subject in SUBJECTS)


@pytest.mark.parametrize("agent", [GEMINI], ids=lambda agent: agent.client)
def test_a_message_that_names_a_skill_brings_its_tools_to_another_client(
    lab: Lab, agent: Agent
) -> None:
    command = agent.give(lab)
    write_skill(lab.project / ".agents/skills", f"metadata:\n  capd: {TOOL}")
    lab.model.go_on([log_of(lab), {"text": "seen"}])
    lab.start_warm()
    lab.install(agent.client)

    lab.run(*command, UNLIKE)

    bodies = lab.model.bodies()
    assert TOOL in said(bodies[0])
    assert all(subject in said(bodies[-1]) for subject in SUBJECTS)
