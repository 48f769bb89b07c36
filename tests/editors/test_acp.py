"""Real agents that speak ACP, started by `capd acp`, with a scripted editor before them."""

from pathlib import Path
from typing import Any

import pytest

from acp.editor import Editor

from .conftest import Start
from .lab import MESSAGE, SUBJECTS, capability_tools

pytestmark = pytest.mark.clients

INITIALIZE: dict[str, Any] = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}},
    "clientInfo": {"name": "scripted-editor", "version": "1"},
}


def script(project: Path, *, tool: str, shell: str, sleep: dict[str, str]) -> list[dict[str, Any]]:
    # A model that takes its time: what was not in its first request is in its second.
    arguments = {"repo_path": str(project), "max_count": 3}
    wait = {"tool": shell, "args": {**sleep, "description": "wait"}}
    return [wait, {"tool": tool, "args": arguments}, {"text": "three commits"}]


def said_by(editor: Editor) -> str:
    """Return what the agent has streamed to its editor."""
    updates = [
        each["params"]["update"] for each in editor.heard if "update" in each.get("params", {})
    ]
    chunks = [each for each in updates if each["sessionUpdate"] == "agent_message_chunk"]
    return "".join(each["content"]["text"] for each in chunks)


def test_a_prompt_to_opencode_brings_its_tools_and_the_call_reaches_the_server(
    start_lab: Start, opencode: Path, tmp_path: Path
) -> None:
    wait = {"command": "sleep 2"}
    lab = start_lab(script(tmp_path / "harbour", tool="git__git_log$", shell="^bash$", sleep=wait))
    lab.add_opencode(opencode)
    lab.start_warm()
    with (
        lab.home.shim("holding", lab.project),
        Editor(lab.home, ["opencode", "acp"], lab.env, lab.project) as editor,
    ):
        # The server runs already, as it does in the second conversation of a day.
        lab.home.ask("enable", name="git", session="holding")
        editor.ask("initialize", **INITIALIZE)
        session = editor.open(lab.project)

        answer = editor.say(session, MESSAGE)

        bodies = lab.model.bodies()
        print("first request:", sorted(capability_tools(bodies[0], "capd_")))
        assert answer["stopReason"] == "end_turn"
        assert said_by(editor).endswith("three commits")
        assert "git__git_log" in capability_tools(bodies[1], "capd_")
        assert all(subject in str(bodies[-1]["messages"]) for subject in SUBJECTS)
        assert editor.leave() == 0
