"""Real agents that speak ACP, started by `capd acp`, with a scripted editor."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from acp.editor import Editor

from .conftest import Start
from .lab import MESSAGE, SUBJECTS, capability_tools, installed

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
    """Return the text that the agent has streamed to its editor."""
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
    lab.set_mode("dynamic")
    lab.start_warm()
    with (
        lab.home.shim("holding", lab.project),
        Editor(lab.home, ["opencode", "acp"], lab.env, lab.project) as editor,
    ):
        # The server runs already, as it does in the second conversation of a day.
        lab.home.ask("enable", name="git", session="holding")
        editor.ask("initialize", **INITIALIZE)
        session = editor.open(lab.project)
        # A second conversation in the folder: its connection takes the place of the first one's.
        editor.open(lab.project)

        answer = editor.say(session, MESSAGE)

        bodies = lab.model.bodies()
        print("first request:", sorted(capability_tools(bodies[0], "capd_")))
        assert answer["stopReason"] == "end_turn"
        assert said_by(editor).endswith("three commits")
        assert "git__git_log" in capability_tools(bodies[1], "capd_")
        assert all(subject in str(bodies[-1]["messages"]) for subject in SUBJECTS)
        assert editor.leave() == 0


def test_a_prompt_to_gemini_brings_its_tools_and_the_call_reaches_the_server(
    start_lab: Start, tmp_path: Path
) -> None:
    package = installed(("@google/gemini-cli", "0.61.0"))
    program = package / json.loads((package / "package.json").read_text())["bin"]["gemini"]
    wait = {"command": "sleep 2"}
    lab = start_lab(
        script(tmp_path / "harbour", tool="git__git_log$", shell="^run_shell_command$", sleep=wait)
    )
    lab.env |= {
        "GOOGLE_GEMINI_BASE_URL": lab.model.url,
        "GEMINI_API_KEY": "fake",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        # Otherwise a model is asked which model to ask.
        "GEMINI_MODEL": "gemini-2.5-pro",
    }
    settings = lab.user / ".gemini" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    lab.set_mode("dynamic")
    lab.start_warm()
    node = shutil.which("node") or pytest.skip("node is not installed")
    command = [node, str(program), "--experimental-acp"]
    with (
        lab.home.shim("holding", lab.project),
        Editor(lab.home, command, lab.env, lab.project) as editor,
    ):
        lab.home.ask("enable", name="git", session="holding")
        editor.ask("initialize", **INITIALIZE)
        session = editor.open(lab.project)

        answer = editor.say(session, MESSAGE)

        bodies = lab.model.bodies()
        listed = ["mcp_capd_git__git_log" in json.dumps(each["tools"]) for each in bodies]
        told = ["capd switched on 'git'" in json.dumps(each["contents"]) for each in bodies]
        print("listed:", listed, "told:", told)
        assert answer["stopReason"] == "end_turn"
        assert said_by(editor).endswith("three commits")
        assert all(subject in json.dumps(bodies[-1]["contents"]) for subject in SUBJECTS)


def test_a_prompt_to_claude_brings_its_tools_and_the_call_reaches_the_server(
    start_lab: Start, tmp_path: Path
) -> None:
    package = installed(("@agentclientprotocol/claude-agent-acp", "0.101.0"))
    (program,) = json.loads((package / "package.json").read_text())["bin"].values()
    log = {"repo_path": str(tmp_path / "harbour"), "max_count": 3}
    # Here a model looks every tool of a server up before it calls it; their names it is told.
    look_up = {"tool": "^ToolSearch$", "args": {"query": "select:mcp__capd__git__git_log"}}
    lab = start_lab([look_up, {"tool": "git__git_log$", "args": log}, {"text": "three commits"}])
    lab.env |= {
        "ANTHROPIC_BASE_URL": lab.model.url,
        "ANTHROPIC_API_KEY": "fake",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # It would not start as root otherwise, which containers are.
        "IS_SANDBOX": "1",
    }
    lab.set_mode("dynamic")
    lab.start_warm()
    node = shutil.which("node") or pytest.skip("node is not installed")
    with (
        lab.home.shim("holding", lab.project),
        Editor(lab.home, [node, str(package / program)], lab.env, lab.project) as editor,
    ):
        lab.home.ask("enable", name="git", session="holding")
        editor.ask("initialize", **INITIALIZE)
        session = editor.open(lab.project)

        answer = editor.say(session, MESSAGE)

        bodies = lab.model.bodies()
        named = ["mcp__capd__git__git_log" in json.dumps(each["messages"]) for each in bodies]
        told = ["capd switched on 'git'" in json.dumps(each["messages"]) for each in bodies]
        print("named:", named, "told:", told)
        assert answer["stopReason"] == "end_turn"
        assert said_by(editor).endswith("three commits")
        assert all(subject in json.dumps(bodies[-1]["messages"]) for subject in SUBJECTS)
