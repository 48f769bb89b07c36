"""Each sub-agent has a session inside the connection of its conversation."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import PATIENCE, SHIM, Home, wait_for


class Editor(McpHost):
    """A client as Claude Code is one: its hooks name sub-agents, and its calls tool uses."""

    def __init__(self, home: Home, session: str = "s", cwd: Path | None = None) -> None:
        super().__init__(
            [sys.executable, "-I", "-S", str(SHIM), home.socket],
            env={**home.env, "CAPD_SESSION": session, "CAPD_CLIENT": "claude-code"},
            cwd=str(cwd or home.folder),
        )
        self.initialize("claude-code")
        self.tools()
        self.uses = 0

    def hook(self, event: str, **arguments: str) -> dict[str, Any]:
        """Run a hook; return its output for the client."""
        said = self.call("capd_turn", {"event": event, "session_id": "c", "cwd": "/", **arguments})
        output: dict[str, Any] = json.loads(said["content"][0]["text"])
        return output

    def by(self, agent: str, tool: str, /, **arguments: Any) -> str:
        """Make a call of a sub-agent, or of the conversation itself; return its text."""
        self.uses += 1
        use = f"toolu_{self.uses}"
        assert self.hook("PreToolUse", agent_id=agent, tool_use_id=use) == {}
        return self.call_of(use, tool, arguments)

    def call_of(self, use: str, name: str, arguments: dict[str, Any]) -> str:
        meta = {"claudecode/toolUseId": use}
        result = self.ask("tools/call", {"name": name, "arguments": arguments, "_meta": meta})
        return str(result["content"][0]["text"])

    def begin(self, agent: str, id_: str, tool: str, /, **arguments: Any) -> None:
        """Make a call, and wait for no answer."""
        self.hook("PreToolUse", agent_id=agent, tool_use_id=id_)
        meta = {"claudecode/toolUseId": id_}
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        self._write({"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})

    def ended(self, id_: str) -> str:
        """Return the text of a call that was begun."""
        while (message := self._next("an answer", PATIENCE)).get("id") != id_:
            pass
        return str(message["result"]["content"][0]["text"])

    def enable(self, agent: str, name: str) -> str:
        return self.by(agent, "capability", action="enable", name=name)

    def was_told_of_a_list(self) -> bool:
        # What it was told before an answer has come before the answer.
        self.ask("ping")
        return any("list_changed" in each.get("method", "") for each in self._notifications)


class Sessions:
    """The daemon's report on its sessions."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def __call__(self) -> dict[str, dict[str, Any]]:
        return {each["key"]: each for each in self._home.ask("sessions")["sessions"]}

    def active(self) -> dict[str, list[str]]:
        found = self().items()
        return {key: sorted(a["name"] for a in each["active"]) for key, each in found}


@pytest.fixture
def sessions(home: Home) -> Sessions:
    return Sessions(home)


@pytest.fixture
def editor(home: Home) -> Iterator[Editor]:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text('[surface]\nmode = "dynamic"\n')
    for name in ("boats", "walls", "lamps"):
        home.plain(name)
    home.start()
    with Editor(home) as made:
        yield made


def names(editor: Editor) -> list[str]:
    return [tool["name"] for tool in editor.tools()]


def test_what_a_sub_agent_switches_on_never_reaches_its_conversation(
    editor: Editor, sessions: Sessions
) -> None:
    editor.hook("SubagentStart", agent_id="a1")
    before = names(editor)

    told = editor.enable("a1", "boats")
    said = editor.by("a1", "tool_call", name="boats__echo", arguments={"text": "ahoy"})
    again = editor.by("a1", "boats__echo", text="ahoy again")

    assert "tool_call" in told
    assert [said.endswith("ahoy"), again.endswith("ahoy again")] == [True, True]
    assert sessions.active() == {"s": [], "s:a1": ["boats"]}
    assert sessions()["s:a1"]["parent"] == "s"
    assert sessions()["s:a1"]["calls"] == 2
    assert sessions()["s"]["calls"] == 0
    assert names(editor) == before
    assert not editor.was_told_of_a_list()


def test_a_sub_agent_begins_with_what_its_conversation_had_on_at_its_start(
    editor: Editor, sessions: Sessions, home: Home
) -> None:
    editor.enable("", "boats")
    editor.hook("SubagentStart", agent_id="a1")
    editor.enable("", "walls")
    running = len(home.servers())

    said = editor.by("a1", "boats__echo", text="ahoy")

    assert said.endswith("ahoy")
    assert sessions.active() == {"s": ["boats", "walls"], "s:a1": ["boats"]}
    assert len(home.servers()) == running


def test_two_sub_agents_have_their_own(editor: Editor, sessions: Sessions) -> None:
    for agent in ("a1", "a2"):
        editor.hook("SubagentStart", agent_id=agent)

    editor.enable("a1", "boats")
    editor.enable("a2", "walls")
    editor.by("a1", "capability", action="disable", name="boats")

    assert sessions.active() == {"s": [], "s:a1": [], "s:a2": ["walls"]}


def test_a_sub_agent_that_is_over_holds_nothing(
    editor: Editor, sessions: Sessions, home: Home
) -> None:
    editor.hook("SubagentStart", agent_id="a1")
    editor.enable("a1", "boats")
    editor.by("a1", "boats__echo", text="ahoy")

    ended = editor.hook("SubagentStop", agent_id="a1")

    # With any context the client would have it go on.
    assert ended == {}
    wait_for(lambda: list(sessions()) == ["s"])
    wait_for(lambda: not home.servers())


def test_a_sub_agent_that_never_calls_has_no_session(editor: Editor, sessions: Sessions) -> None:
    editor.hook("SubagentStart", agent_id="a1")

    assert list(sessions()) == ["s"]
    assert editor.hook("SubagentStop", agent_id="a1") == {}


def test_a_conversation_that_ends_takes_its_sub_agents_with_it(
    editor: Editor, sessions: Sessions, home: Home
) -> None:
    editor.enable("a1", "boats")
    assert set(sessions()) == {"s", "s:a1"}

    editor.leave()

    wait_for(lambda: not sessions())
    wait_for(lambda: not home.servers())


def test_a_call_that_no_hook_announced_is_the_conversations(
    editor: Editor, sessions: Sessions
) -> None:
    editor.hook("SubagentStart", agent_id="a1")
    arguments = {"action": "enable", "name": "boats"}

    editor.call_of("toolu_of_nobody", "capability", arguments)

    assert sessions.active() == {"s": ["boats"]}


def test_the_next_daemon_begins_sub_agents_again(
    editor: Editor, sessions: Sessions, home: Home
) -> None:
    editor.enable("", "walls")
    editor.enable("a1", "boats")
    home.processes[-1].terminate()
    home.processes[-1].wait()
    home.start()
    # The thin client answers hooks by itself until it has reached the daemon.
    assert editor.call_of("own", "walls__echo", {"text": "own"}).endswith("own")

    said = editor.by("a1", "walls__echo", text="ahoy")

    assert said.endswith("ahoy")
    assert sessions.active() == {"s": ["walls"], "s:a1": ["walls"]}


def test_a_skill_that_a_sub_agent_uses_brings_its_tools_to_the_agent_alone(
    home: Home, sessions: Sessions
) -> None:
    user = home.folder / "user"
    file = user / ".claude/skills/tidy/SKILL.md"
    file.parent.mkdir(parents=True)
    file.write_text("---\nname: tidy\ndescription: Tidies.\ncapd: boats\n---\nDo it.\n")
    home.env |= {"HOME": str(user)}
    home.env.pop("CLAUDE_CONFIG_DIR", None)
    home.plain("boats")
    (home.folder / "config/config.toml").write_text('[surface]\nmode = "dynamic"\n')
    home.start()
    with Editor(home) as editor:
        told = editor.hook("PreToolUse", skill="tidy", agent_id="a1", tool_use_id="t")

        context = told["hookSpecificOutput"]["additionalContext"]
        assert "boats__echo" in context
        assert "call them with tool_call" in context
        assert "permissionDecision" not in json.dumps(told)
        assert sessions.active() == {"s": [], "s:a1": ["boats"]}
        assert not editor.was_told_of_a_list()


def test_an_approval_for_the_session_of_a_sub_agent_is_not_its_conversations(home: Home) -> None:
    home.plain("boats")
    (home.folder / "config/config.toml").write_text(
        '[surface]\nmode = "dynamic"\n[policy]\nask = ["boats:*"]\nask_timeout = 600\n'
    )
    home.start()
    with Editor(home) as editor:
        editor.enable("a1", "boats")
        editor.enable("", "boats")

        editor.begin("a1", "first", "boats__echo", text="ahoy")
        wait_for(lambda: home.ask("approvals")["waiting"])
        (waiting,) = home.ask("approvals")["waiting"]
        home.at_terminal("approve", typed="s\n")
        answered = editor.ended("first")
        again = editor.by("a1", "boats__echo", text="again")
        editor.begin("", "own", "boats__echo", text="own")
        wait_for(lambda: home.ask("approvals")["waiting"])
        (own,) = home.ask("approvals")["waiting"]
        home.at_terminal("approve", typed="o\n")

        assert [waiting["session"], own["session"]] == ["s:a1", "s"]
        assert answered.endswith("ahoy")
        assert again.endswith("again")
        assert editor.ended("own").endswith("own")


@pytest.mark.parametrize("agent", ["", "x" * 65, "../s", "a b", "${agent_id}"])
def test_an_id_that_is_none_is_the_conversations(
    editor: Editor, sessions: Sessions, agent: str
) -> None:
    for event in ("SubagentStart", "SubagentStop"):
        assert editor.hook(event, agent_id=agent) == {}

    editor.enable(agent, "boats")

    assert sessions.active() == {"s": ["boats"]}


def test_the_only_session_is_meant_though_it_has_sub_agents(
    editor: Editor, sessions: Sessions, home: Home
) -> None:
    editor.enable("a1", "boats")

    home.ask("enable", name="walls")

    assert sessions.active() == {"s": ["walls"], "s:a1": ["boats"]}
