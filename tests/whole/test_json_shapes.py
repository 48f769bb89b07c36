"""Every `--json` output has the shape that docs/cli.schema.json promises."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from capd.actors.control import documents
from capd.actors.control.learning import entry_document
from capd_client.control import Control
from capd_client.doctor.findings import Finding, document
from capd_client.importing.definition import Origin
from capd_client.importing.plan import ImportPlan, LeftOut, PlannedServer
from capd_client.importing.report import document as imported
from capd_client.importing.source_files import Unreadable
from capd_client.mcp_host import McpHost
from capd_client.own_tap import OwnServer
from capd_protos import curator, definitions, finder, registry
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    LearntEntry,
    ServerIdentity,
    ServerName,
    SessionKey,
    SkillSpec,
    TapName,
    ToolName,
    WireName,
)
from support.bridges import Bridge, configured
from whole_daemon import Home, wait_for

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "cli.schema.json").read_text())
COMMANDS = SCHEMA["$defs"]["commands"]


def problems(command: str, document: Any) -> list[str]:
    """Return a document's violations of the schema, one per line."""
    schema = {**SCHEMA, "$ref": f"#/$defs/commands/{command.replace(' ', '%20')}"}
    found = Draft202012Validator(schema).iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for error in found]


@pytest.fixture
def editor(home: Home) -> Iterator[McpHost]:
    home.plain("alpha")
    home.start()
    with home.shim("one") as host:
        home.ask("enable", session="one", name="alpha")
        yield host


@pytest.mark.model
def test_what_the_daemon_answers_is_of_the_shape_that_is_written_down(
    home: Home, editor: McpHost
) -> None:
    # In this order: the later ones show what the earlier ones have done.
    asked: dict[str, dict[str, Any]] = {
        "search": {"query": "echo"},
        "turn": {"text": "thanks"},
        "call": {"name": "alpha__echo", "arguments": {"text": "x"}},
        **{name: {} for name in ("status", "caps", "servers", "sessions", "tools", "reload")},
        "disable": {"name": "alpha"},
        "enable": {"name": "alpha"},
        "stop": {},
    }
    wait_for(lambda: home.ask("search", query="echo")["hits"])

    answers = {name: home.ask(name, **params) for name, params in asked.items()}

    assert {name: wrong for name in asked if (wrong := problems(name, answers[name]))} == {}
    # Nothing is proved by lists that are empty.
    assert answers["status"]["decisions"]
    assert answers["sessions"]["sessions"][0]["active"]
    assert answers["search"]["hits"]
    assert answers["caps"]["capabilities"]


def test_what_commands_find_out_themselves_is_of_its_shape(home: Home, editor: McpHost) -> None:
    own = ("check", "version", "tap list", "secret list")

    printed = {name: json.loads(home.capd(*name.split(), "--json").stdout) for name in own}

    assert {name: wrong for name in own if (wrong := problems(name, printed[name]))} == {}
    assert printed["tap list"]["taps"]


@pytest.mark.model
def test_what_is_told_of_what_happened_and_what_is_trusted_is_of_its_shape(
    home: Home, editor: McpHost
) -> None:
    project = home.folder / "project"
    capability = project / ".capd" / "capabilities" / "db"
    capability.mkdir(parents=True)
    capability.joinpath("config.toml").write_text('triggers = ["one two", "three", "four"]\n')
    capability.joinpath("default.toml").write_text('[[mcp.servers]]\nname = "d"\ncommand = "d"\n')
    home.ask("turn", text="thanks")
    editor.tools()
    wait_for(lambda: home.ask("why")["activations"])
    own = ("why", "metrics", "status --tokens", "config show", "trust --list", "trust definitions")
    asked = {**{name: name.split() for name in own}, "trust": ["trust", str(project)]}

    printed = {name: json.loads(home.capd(*asked[name], "--json").stdout) for name in asked}

    assert {name: wrong for name in asked if (wrong := problems(name, printed[name]))} == {}
    assert printed["why"]["decisions"]
    assert printed["status --tokens"]["sessions"]
    assert printed["config show"]["values"]
    assert printed["trust"]["servers"]
    assert printed["trust definitions"]["servers"]


def test_what_was_learnt_and_what_was_forgotten_is_of_its_shape(
    home: Home, editor: McpHost
) -> None:
    entry = LearntEntry(CapabilityName("git"), 0.25, 0.0, 2, 1, 3, since=1.0, last_at=2.0)

    learnt, forgotten = home.ask("learning"), home.ask("learning_forget")

    assert problems("learn", {**learnt, "capabilities": [entry_document(entry)]}) == []
    assert problems("learn --forget", forgotten) == []


def test_a_change_of_a_definition_is_of_its_shape() -> None:
    tool, server = ToolName("echo"), ServerName("alpha")
    change = definitions.DefinitionChange(
        tool, "changed", "d1", is_withheld=True, is_rejected=False, seen_at=1.0, difference="+ x"
    )
    flag = definitions.DefinitionFlag(tool, "hidden", "U+202E", "a paper")
    listed = definitions.ServerDefinitions(
        server, ServerIdentity("9c1e"), 1, "pinned", is_lost=False, changes=[change], flags=[flag]
    )
    document = {"schema": 1, "mode": "notify", "problems": ["why"]}

    printed = {**document, "servers": [msgspec.to_builtins(listed)]}

    assert problems("trust definitions", printed) == []


def test_the_calls_that_wait_are_of_their_shape() -> None:
    server, tool = ServerName("pg"), ToolName("drop")
    waiting = curator.ApprovalEntry(
        *(3, SessionKey("zed-1"), "Zed", "/app", server, tool, "pg__drop", "{}"),
        *("not said", "*:destructive", "[policy]", 90.5),
    )
    listed = curator.ApprovalsListed([waiting], ["pg:drop"], "")

    printed = {"schema": 1, **msgspec.to_builtins(listed)}

    assert problems("approve", printed) == []


def test_profiles_are_of_their_shape() -> None:
    entry = curator.ProfileEntry("work", ["/w"], ["h/*"], ["main"], ["zed*"], ["git"], "work")
    of_session = curator.SessionProfile(SessionKey("zed-1"), "work", "folder /w", "")

    printed = {
        "schema": 1,
        **msgspec.to_builtins(curator.ProfilesListed([entry], [of_session])),
    }

    assert problems("profile", printed) == []


def test_edited_tools_are_of_their_shape(home: Home, editor: McpHost) -> None:
    home.ask("index")
    wait_for(lambda: home.capd("tool", "edit", "alpha:echo", "--title", "Echo").returncode == 0)

    shown = json.loads(home.capd("tool", "show", "alpha:echo", "--json").stdout)
    listed = json.loads(home.capd("tool", "list", "--json").stdout)

    assert problems("tool show", shown) == []
    assert problems("tool list", listed) == []
    assert len(listed["edits"]) == 1


def test_a_ranking_is_of_its_shape() -> None:
    hit = registry.CapabilityHit(CapabilityId(TapName("t"), CapabilityName("git")), 0.5, ["x"], [])
    skill = finder.SkillHit(WireName("t__s"), SkillSpec(TapName("t"), "s", "/t/s"), 0.25)

    printed = documents.discovered(registry.CapabilitiesFound([hit]), [skill], [], frozenset())

    assert problems("discover", printed) == []


def test_an_index_is_of_its_shape() -> None:
    server = finder.ServerIndexed(ServerName("git"), ServerIdentity("9c1e"), 12, 0.5, "")

    printed = documents.indexed([server])

    assert problems("index", printed) == []


def test_a_report_of_doctor_is_of_its_shape() -> None:
    report = document([Finding("model", "error", "it is broken", "why", "how")])

    assert problems("doctor", report) == []


def test_an_import_is_of_its_shape() -> None:
    origin = Origin("zed", "Zed", Path("/f"), "jsonc", ("context_servers", "a"), "a")
    planned = PlannedServer("a", [origin], ["a note"], OwnServer("a", ["x"]), {"K": "v"}, ["M"])
    unreadable = Unreadable("zed", "Zed", Path("/g"), "it is not JSON")
    plan = ImportPlan(1, [planned], [LeftOut(origin, "it is off")], [unreadable])

    printed = {**imported(plan, is_done=True), "replaced": ["/f"]}

    assert problems("import", printed) == []


def test_bridges_are_of_their_shape(home: Home) -> None:
    configured(home, "[bridges.box]\n")
    home.start()

    with Bridge(home, "box"):
        listed = home.capd("bridge", "list", "--json")
        revoked = home.capd("bridge", "revoke", "box", "--json")

    assert problems("bridge list", json.loads(listed.stdout)) == []
    assert problems("bridge revoke", json.loads(revoked.stdout)) == []


def test_every_shape_that_is_written_down_is_looked_at() -> None:
    text = Path(__file__).read_text()

    assert [name for name in COMMANDS if f'"{name}"' not in text] == []


def test_events_are_of_their_shape(home: Home, editor: McpHost) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "capd_client.entry", "events", "--json"],
        env=home.env,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        # The subscription is there once it has heard one of these.
        lines: list[bytes] = []
        with Control(home.socket) as control:
            while not lines:
                control.call("disable", {"session": "one", "name": "alpha"})
                control.call("enable", {"session": "one", "name": "alpha"})
                if _is_readable(process.stdout):
                    lines.append(process.stdout.readline())
        process.terminate()

    assert problems("events", json.loads(lines[0])) == []


def _is_readable(stream: Any) -> bool:
    import select

    return bool(select.select([stream], [], [], 0.2)[0])


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"disable"}))
def test_a_shape_holds_what_is_not_of_it_back(command: str) -> None:
    required = COMMANDS[command]["required"]

    missing = problems(command, {})

    assert len(missing) == len(required) > 0


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
