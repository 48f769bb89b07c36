"""Edited tools: what clients see, what servers get, and which rules apply."""

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from capd_client.mcp_host import HostError, McpHost
from whole_daemon import PATIENCE, Home, home_of_its_own, wait_for

SERVER = """
import json, os, sys
def tool(name, required, destructive=False, **more):
    properties = {key: {"type": "string"} for key in ("project", "text", "tags")}
    schema = {"type": "object", "properties": properties, "required": required}
    hints = {"destructiveHint": destructive}
    return {"name": name, "description": f"{name} for a project.", "inputSchema": schema,
            "annotations": hints}
TOOLS = [tool("add_note", ["project", "text"]), tool("delete_note", ["text"], True),
         tool("list_notes", [])]
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    params = request.get("params", {})
    said = json.dumps([os.environ.get("WHO", ""), params.get("name"), params.get("arguments")])
    results = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "notes", "version": "1"}},
        "tools/list": {"tools": TOOLS},
        "tools/call": {"content": [{"type": "text", "text": said}]},
    }
    result = results.get(request["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


class Machine:
    """A home with a tracker, whose tools are edited by the files of an overlay."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.config = home.folder / "config"
        self.open: list[McpHost] = []

    def tracker(self, name: str, who: str = "") -> None:
        self.home.capability(name, [sys.executable, "-I", "-c", SERVER, self.home.tag])
        if who:
            file = self.home.folder / f"tap/capabilities/{name}/default.toml"
            file.write_text(f"{file.read_text()}env = {{ WHO = {json.dumps(who)} }}\n")

    def edits(self, capability: str, text: str) -> Path:
        folder = self.config / "overlays/mine"
        (folder / "capabilities").mkdir(parents=True, exist_ok=True)
        (folder / "overlay.toml").write_text('tap = "mine"\n')
        file = folder / f"capabilities/{capability}.toml"
        file.write_text(text)
        return file

    def settings(self, text: str) -> None:
        (self.config / "config.toml").write_text(text)

    def editor(self, *names: str, key: str = "e") -> McpHost:
        editor = self.home.shim(key)
        self.open.append(editor)
        for name in names:
            assert self.home.ask("enable", session=key, name=name)["ok"]
        return editor


@pytest.fixture
def machine(home: Home) -> Iterator[Machine]:
    made = Machine(home)
    yield made
    for editor in made.open:
        editor.leave()


def tools_of(editor: McpHost) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in editor.tools() if "__" in each["name"]}


def reached(result: dict[str, Any]) -> list[Any]:
    """Return the server, the tool and the arguments of a call that arrived."""
    found: list[Any] = json.loads(result["content"][0]["text"])
    return found


def outcome(editor: McpHost, name: str, arguments: dict[str, Any]) -> str:
    """Return how a call ends that reaches no server, in words."""
    try:
        return told(editor.call(name, arguments))
    except HostError as error:
        return str(error)


def is_denied(text: str) -> str:
    return text if "denied by policy" in text else ""


def told(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


EDITS = """
[tool."notes:add_note"]
name = "remember"
description = "Remembers something about our app."
[tool."notes:add_note".arguments.project]
preset = "acme"
[tool."notes:add_note".arguments.tags]
hidden = true
[tool."notes:add_note".arguments.text]
name = "what"
[tool."notes:list_notes"]
disabled = true
"""


def test_a_client_sees_the_edited_tool_and_the_server_gets_its_own(machine: Machine) -> None:
    machine.tracker("notes")
    machine.edits("notes", EDITS)
    machine.home.start()
    editor = machine.editor("notes")

    seen = tools_of(editor)
    by_name = reached(editor.call("notes__remember", {"what": "tea"}))
    by_caller = reached(
        editor.call("tool_call", {"name": "notes__remember", "arguments": {"what": "milk"}})
    )

    assert list(seen) == ["notes__remember", "notes__delete_note"]
    assert seen["notes__remember"]["description"] == "Remembers something about our app."
    assert seen["notes__remember"]["inputSchema"] == {
        "type": "object",
        "properties": {"what": {"type": "string"}},
        "required": ["what"],
    }
    assert by_name == ["", "add_note", {"text": "tea", "project": "acme"}]
    assert by_caller == ["", "add_note", {"text": "milk", "project": "acme"}]


def test_calls_outside_the_edited_schema_are_refused_before_they_are_sent(
    machine: Machine,
) -> None:
    machine.tracker("notes")
    machine.edits("notes", EDITS)
    machine.home.start()
    editor = machine.editor("notes")

    outside = outcome(editor, "notes__remember", {"what": "tea", "project": "evil"})
    hidden = outcome(editor, "notes__remember", {"what": "tea", "tags": "x"})
    missing = outcome(editor, "notes__remember", {})
    by_old_name = outcome(editor, "notes__add_note", {"project": "evil", "text": "x"})
    off = outcome(editor, "notes__list_notes", {})

    assert "notes__remember has no argument 'project'. The call was not sent." in outside
    assert "notes__remember has no argument 'tags'" in hidden
    assert "what" in missing
    assert "notes__add_note" in by_old_name
    assert "switched off by an edit of the user's" in off


def test_rules_are_about_the_servers_own_tool_whatever_it_is_called(machine: Machine) -> None:
    machine.tracker("notes")
    machine.edits(
        "notes",
        '[tool."notes:delete_note"]\nname = "tidy_up"\ndescription = "Harmless."\n'
        '[tool."notes:add_note"]\nname = "delete_note"\n',
    )
    machine.settings('[policy]\ndeny = ["notes:delete_*"]\n')
    machine.home.start()
    editor = machine.editor("notes")

    seen = tools_of(editor)
    # Until the finder has read what the server listed, nobody knows the name.
    denied = wait_for(lambda: is_denied(outcome(editor, "notes__tidy_up", {"text": "x"})))
    allowed = reached(editor.call("notes__delete_note", {"project": "p", "text": "x"}))

    assert list(seen) == ["notes__delete_note", "notes__list_notes"]
    assert "rule 'notes:delete_*'" in denied
    assert allowed == ["", "add_note", {"project": "p", "text": "x"}]


def test_a_person_is_asked_about_the_servers_tool_and_what_it_gets(machine: Machine) -> None:
    machine.tracker("notes")
    machine.edits("notes", EDITS)
    machine.settings('[policy]\nask = ["notes:add_note"]\nask_timeout = 600\n')
    machine.home.start()
    editor = machine.editor("notes")
    results: list[dict[str, Any]] = []
    calling = Thread(
        target=lambda: results.append(editor.call("notes__remember", {"what": "tea"}, PATIENCE))
    )
    calling.start()
    waiting = wait_for(lambda: machine.home.ask("approvals")["waiting"])

    machine.home.at_terminal("approve", str(waiting[0]["number"]), "--once", typed="")
    calling.join()

    assert (waiting[0]["tool"], waiting[0]["name"]) == ("add_note", "notes__remember")
    assert json.loads(waiting[0]["arguments"]) == {"text": "tea", "project": "acme"}
    assert reached(results[0]) == ["", "add_note", {"text": "tea", "project": "acme"}]


def test_two_instances_of_one_server_are_edited_each_by_itself(machine: Machine) -> None:
    machine.tracker("work", "W")
    machine.tracker("home", "H")
    for name, project in (("work", "acme"), ("home", "garden")):
        machine.edits(
            name,
            f'[tool."{name}:add_note"]\nname = "note_for_{project}"\n'
            f'[tool."{name}:add_note".arguments.project]\npreset = "{project}"\n',
        )
    machine.home.start()
    editor = machine.editor("work", "home")

    seen = tools_of(editor)
    got = [
        reached(editor.call("work__note_for_acme", {"text": "a"})),
        reached(editor.call("home__note_for_garden", {"text": "b"})),
    ]

    assert {"work__note_for_acme", "home__note_for_garden"} <= set(seen)
    assert got == [
        ["W", "add_note", {"text": "a", "project": "acme"}],
        ["H", "add_note", {"text": "b", "project": "garden"}],
    ]


def test_an_edit_of_what_is_not_there_changes_nothing_else(machine: Machine) -> None:
    machine.tracker("notes")
    file = machine.edits(
        "notes",
        '[tool."notes:gone"]\nname = "x"\n[tool."other:add_note"]\nname = "y"\n'
        '[tool."notes:list_notes"]\nname = "notes"\n'
        "[tool.'notes:list_notes'.arguments]\n"
        "colour = { hidden = true }\ntags = { hidden = true }\n",
    )
    machine.home.start()
    editor = machine.editor("notes")

    seen = tools_of(editor)
    shown = wait_for(lambda: machine.home.capd("tool", "show", "notes:list_notes").stdout)
    checked = machine.home.capd("check").stdout

    assert list(seen) == ["notes__add_note", "notes__delete_note", "notes__notes"]
    assert list(seen["notes__notes"]["inputSchema"]["properties"]) == ["project", "text"]
    assert "not applied: argument 'colour' is not there" in shown
    found = [line for line in checked.splitlines() if str(file) in line]
    assert [line.partition("warning: ")[2] for line in sorted(found)] == [
        "tool.\"notes:gone\": server 'notes' lists no tool 'gone': the edit changes nothing",
        "tool.\"notes:list_notes\": argument 'colour' is not there",
        "tool.\"other:add_note\": mine/notes has no server 'other': the edit changes nothing",
    ]


def test_search_cards_and_scripts_have_the_edited_form(machine: Machine) -> None:
    machine.tracker("notes")
    machine.edits("notes", EDITS)
    machine.settings('[surface]\nmode = "stable"\n')
    machine.home.start()
    machine.home.ask("index")
    editor = machine.home.shim("e")
    machine.open.append(editor)

    def found() -> str:
        text = told(editor.call("tool_search", {"query": "remembers something about our app"}))
        return text if "notes__remember" in text else ""

    card = wait_for(found)
    script = "await notes.remember(what='tea')"
    ran = told(editor.call("tool_call", {"name": "script_run", "arguments": {"code": script}}))

    assert "what" in card
    [line] = [each for each in card.splitlines() if "notes__remember" in each]
    assert "project" not in line
    assert "notes__list_notes" not in card
    assert "add_note" in ran
    assert "acme" in ran


def test_capd_tool_edits_shows_and_resets(machine: Machine) -> None:
    machine.tracker("notes")
    machine.home.start()
    machine.home.ask("index")
    wait_for(lambda: machine.home.capd("tool", "show", "notes:add_note").returncode == 0)

    made = machine.home.capd(
        *("tool", "edit", "notes__add_note", "--name", "remember", "--hide", "tags"),
        *("--preset", "project=acme", "--rename-argument", "text=what"),
        *("--describe-argument", "text=One line."),
    )
    editor = machine.editor("notes")
    seen = tools_of(editor)
    got = reached(editor.call("notes__remember", {"what": "tea"}))
    why = machine.home.capd("why").stdout
    listed = json.loads(machine.home.capd("tool", "list", "--json").stdout)["edits"]
    reset = machine.home.capd("tool", "reset", "notes:add_note")
    again = machine.home.capd("tool", "reset", "notes:add_note")

    file = machine.config / "overlays/edits-mine/capabilities/notes.toml"
    line = (
        "notes__remember  is notes:add_note: called remember, tags is hidden, text is called "
        'what, text is described otherwise, project is always "acme"'
    )
    assert made.returncode == 0
    assert "clients see   notes__remember(what)" in made.stdout
    assert "server lists  add_note(project, text, tags?)" in made.stdout
    assert f"edited in     {file}" in made.stdout
    assert "notes__remember" in seen
    assert got == ["", "add_note", {"text": "tea", "project": "acme"}]
    assert line in why
    assert [each["tool"] for each in listed] == ["notes:add_note"]
    assert "not edited: this is how its server lists it" in reset.stdout
    assert not file.parents[1].exists()
    assert (again.returncode, again.stderr) == (1, "capd: notes:add_note was not edited\n")


@pytest.fixture(scope="module")
def known_notes() -> Iterator[Home]:
    """A daemon that knows the tracker's tools, for edits that change none of them."""
    with home_of_its_own(is_shipped=False, is_forked=True) as home:
        home.leave_out_model()
        machine = Machine(home)
        machine.tracker("notes")
        home.start()
        # A server's tools are known from its first start on.
        machine.editor("notes").leave()
        wait_for(lambda: home.capd("tool", "show", "notes:add_note").returncode == 0)
        yield home


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("notes:add_note",), 2, "say what to change"),
        (("notes:gone", "--name", "x"), 1, "no known tool is named 'notes:gone'"),
        (("notes:add_note", "--preset", "acme"), 2, "--preset acme has no ARGUMENT before `=`"),
        (("notes:add_note", "--preset", "project=null"), 1, "which cannot be preset"),
        (("notes:add_note", "--hide", "text"), 0, "not applied: argument 'text' is required"),
        (("notes:add_note", "--name", "a b"), 2, "'a b' is not a valid name: use up to 64 letters"),
        (("notes:add_note", "--rename-argument", "text=a b"), 2, "'a b' is not a valid name"),
    ],
)
def test_a_bad_edit_is_answered_with_the_reason(
    known_notes: Home, arguments: tuple[str, ...], code: int, said: str
) -> None:
    got = known_notes.capd("tool", "edit", *arguments)

    assert said in f"{got.stdout}{got.stderr}"
    assert got.returncode == code


PAGE = Path(__file__).parents[2] / "docs" / "tools.md"


def test_the_example_of_the_page_can_be_typed(machine: Machine) -> None:
    lines = PAGE.read_text().partition("## Example")[2].splitlines()
    shown = [line.removeprefix("    ") for line in lines if line.startswith("    ")]
    machine.tracker("notes")
    machine.home.start()
    machine.home.ask("index")
    wait_for(lambda: machine.home.capd("tool", "show", "notes:add_note").returncode == 0)

    said: list[str] = []
    for line in shown:
        if line.startswith("$ capd "):
            done = machine.home.capd(*shlex.split(line.removeprefix("$ capd ")))
            assert done.returncode == 0, done.stderr
            said += done.stdout.replace(str(machine.config), "~/.config/capd").splitlines()

    printed = [line for line in shown if not line.startswith("$ ")]
    assert [line for line in printed if line not in said] == []
    assert json.loads(said[-1]) == ["", "add_note", {"text": "tea", "project": "acme"}]
