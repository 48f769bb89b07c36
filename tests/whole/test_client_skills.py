"""Using a client's skill activates the capabilities that it names."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import ControlError
from capd_client.mcp_host import McpHost
from whole_daemon import PLAIN_SERVER, Home, wait_for

from .test_trust import Project


class Machine:
    """A user with skills, a capability, and a project."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.user, self.project = home.folder / "user", home.folder / "harbour"
        self.user.mkdir()
        self.project.mkdir()
        home.env["HOME"] = str(self.user)
        home.env.pop("CLAUDE_CONFIG_DIR", None)
        for name in ("boats", "walls"):
            home.plain(name)

    def skill(self, folder: Path, name: str, head: str) -> None:
        file = folder / ".claude/skills" / name / "SKILL.md"
        file.parent.mkdir(parents=True)
        file.write_text(f"---\nname: {name}\ndescription: About {name}.\n{head}\n---\nDo it.\n")

    @contextlib.contextmanager
    def editor(self, session: str = "s") -> Iterator[McpHost]:
        host = self.home.shim(session, self.project)
        try:
            yield host
        finally:
            host.leave()

    def list_tools_of(self, name: str) -> None:
        """Let capd know a capability's tools, as after an earlier session."""
        with self.editor("earlier"):

            def enabled() -> bool:
                with contextlib.suppress(ControlError):
                    return bool(self.home.ask("enable", session="earlier", name=name)["ok"])
                return False

            wait_for(enabled)
            found = f"{name}__shout"
            wait_for(lambda: found in json.dumps(self.home.ask("search", query=f"{name} shout")))

    def active(self, session: str = "s") -> list[str]:
        sessions = self.home.ask("sessions")["sessions"]
        [found] = [each for each in sessions if each["key"] == session]
        return sorted(each["name"] for each in found["active"])


@pytest.fixture
def machine(home: Home) -> Machine:
    return Machine(home)


def use(editor: McpHost, skill: str) -> str:
    """Report a model's use of a skill like a client's hook; return the text for the model."""
    arguments = {"event": "PreToolUse", "skill": skill, "session_id": "c", "cwd": "/"}
    said = json.loads(editor.call("capd_turn", arguments)["content"][0]["text"])
    output: dict[str, Any] = said.get("hookSpecificOutput", {})
    assert output.get("hookEventName", "PreToolUse") == "PreToolUse"
    assert "permissionDecision" not in output
    return str(output.get("additionalContext", ""))


def test_a_skill_brings_a_tool_by_name_and_starts_nothing(machine: Machine) -> None:
    machine.skill(machine.user, "tidy", "allowed-tools: mcp__capd__boats__echo, Read")
    (machine.home.folder / "config/config.toml").write_text('[surface]\nmode = "dynamic"\n')
    machine.home.start()
    machine.list_tools_of("boats")
    wait_for(lambda: not machine.home.servers())
    with machine.editor() as editor:
        told = use(editor, "tidy")

        assert told.startswith("capd switched on for the skill 'tidy': boats__echo.")
        assert machine.active() == ["boats__echo"]
        assert machine.home.servers() == []
        said = editor.call("boats__echo", {"text": "ahoy"})["content"][0]["text"]
        assert said.endswith("ahoy")


def test_a_skill_brings_capabilities_and_a_second_use_changes_nothing(machine: Machine) -> None:
    machine.skill(machine.user, "paint", "metadata:\n  capd: walls")
    machine.home.start()
    with machine.editor() as editor:
        first = use(editor, "paint")
        second = use(editor, "paint")

        assert machine.active() == ["walls"]
        assert "walls__echo, walls__shout" in first
        assert second == first


def test_a_tool_of_a_server_that_never_ran_brings_the_capability_of_its_name(
    machine: Machine,
) -> None:
    machine.skill(machine.user, "tidy", "allowed-tools: mcp__boats__echo")
    machine.home.start()
    with machine.editor() as editor:
        use(editor, "tidy")

        assert machine.active() == ["boats"]


@pytest.mark.model
def test_a_message_that_names_a_skill_brings_its_tools(machine: Machine) -> None:
    machine.skill(machine.user, "paint-it", "capd: walls")
    # Its author may have chosen a name that stands in ordinary messages.
    machine.skill(machine.project, "until-noon", "capd: boats")
    machine.home.start()
    with machine.editor():
        machine.home.ask("turn", session="s", text="wait until-noon")
        assert machine.active() == []

        taken = machine.home.ask("turn", session="s", text="go on with paint-it until noon")

        assert machine.active() == ["walls"]
        assert "the skill 'paint-it': walls__echo, walls__shout" in json.dumps(taken)


@pytest.mark.model
def test_messages_switched_off_bring_no_skill(machine: Machine) -> None:
    machine.skill(machine.user, "paint-it", "capd: walls")
    machine.home.start()
    with machine.editor():
        machine.home.ask("routing", session="s", enabled=False)

        machine.home.ask("turn", session="s", text="go on with paint-it until noon")

        assert machine.active() == []


@pytest.mark.parametrize("skill", ["nobody", "", "../tidy", "tidy/../tidy", "x" * 5000, "tidy\n"])
def test_a_skill_that_there_is_not_brings_nothing(machine: Machine, skill: str) -> None:
    machine.skill(machine.user, "tidy", "capd: boats")
    machine.home.start()
    with machine.editor() as editor:
        told = use(editor, skill)

        assert (told, machine.active()) == ("", [])


def test_policy_holds_for_what_a_skill_names_and_the_model_is_told(machine: Machine) -> None:
    machine.skill(machine.user, "tidy", "capd: boats\nallowed-tools: mcp__capd__walls__echo")
    config = machine.home.folder / "config"
    (config / "config.toml").write_text('[policy]\ndeny = ["boats:*", "walls:*"]\n')
    machine.home.start()
    with machine.editor() as editor:
        told = use(editor, "tidy")

        assert machine.active() == []
        assert told.startswith("capd could not switch on for the skill 'tidy': ")
        assert "denied" in told
        assert machine.home.servers() == []


def test_an_untrusted_clones_skill_starts_nothing_that_the_clone_defines(
    machine: Machine,
) -> None:
    clone = Project(machine.project, machine.home.tag)
    machine.skill(
        machine.project, "look", "capd: appdb\nallowed-tools: mcp__capd__appdb__echo, mcp__walls"
    )
    machine.home.start()
    with machine.editor() as editor:
        told = use(editor, "look")

        assert machine.active() == ["walls"]
        assert "could not switch on for the skill 'look': " in told
        assert "trust" in told
    assert clone.runs == 0


def test_a_skill_of_a_capability_that_is_slow_to_start_does_not_hold_the_client(
    machine: Machine,
) -> None:
    slow = "import sys, time; time.sleep(4); sys.stdin = sys.__stdin__\n"
    run = f"{slow}exec(open({str(PLAIN_SERVER)!r}).read())"
    machine.home.capability("slow", [sys.executable, "-I", "-c", run, machine.home.tag])
    machine.skill(machine.user, "wait", "capd: slow")
    machine.home.start()
    with machine.editor() as editor:
        told = use(editor, "wait")

        assert told == ""
        wait_for(lambda: machine.active() == ["slow"])
