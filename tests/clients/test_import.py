"""`capd import`: its questions, what is left out, and its report."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from capd.adapters.tool_lists import ToolLists
from capd.core.servers.identity import server_identity
from capd.core.taps.tap_format import CapabilityFiles, read_capability
from capd_client.own_tap import OwnServer, OwnTap, definition
from capd_protos.types import CapabilityName, TapName, ToolDefinition, ToolName
from whole_daemon import Home

from .conftest import FakeDaemon
from .importing import Importer


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Importer:
    made = Importer(tmp_path, samples=False)
    monkeypatch.chdir(made.project)
    return made


def test_only_the_clients_that_are_named_are_read(user: Importer) -> None:
    user.servers(cursors={"command": "a"})
    user.servers(".junie/mcp/mcp.json", junies={"command": "b"})

    said = user.capd("import", "junie", "--yes")

    assert (said.code, list(user.catalog())) == (0, ["junies"])


def test_what_only_a_file_of_the_folder_names_is_left_out_until_it_is_asked_for(
    user: Importer,
) -> None:
    user.servers(ours={"command": "a"})
    (user.project / ".mcp.json").write_text('{"mcpServers": {"theirs": {"command": "b"}}}')

    first = user.capd("import", "--yes")
    ours = list(user.catalog())
    user.capd("import", "--project", "--yes")

    assert "--project takes it over" in first.out
    assert (ours, sorted(user.catalog())) == (["ours"], ["ours", "theirs"])


def test_a_file_of_the_folder_gives_no_name_to_a_server_that_the_user_has(user: Importer) -> None:
    user.servers(".qwen/settings.json", mine={"command": "uvx", "args": ["mcp-server-time"]})
    theirs = {"mcpServers": {"github": {"command": "uvx", "args": ["mcp-server-time"]}}}
    (user.project / ".mcp.json").write_text(json.dumps(theirs))
    (user.project / ".roo").mkdir()
    (user.project / ".roo/mcp.json").write_text(json.dumps(theirs))

    user.capd("import", "--project", "--yes")

    assert list(user.catalog()) == ["mine"]


def test_a_server_whose_tools_a_tap_knows_gets_triggers_from_them(user: Importer) -> None:
    user.servers(
        clock={"command": "uvx", "args": ["mcp-server-time==2025.1"]}, other={"command": "b"}
    )

    said = user.capd("import", "--yes")

    clock = user.triggers("clock")
    assert clock[:2] == ["use clock", "ask clock"]
    assert "get current time in a specific timezone" in clock
    assert user.triggers("other") == ["use other", "ask other", "with the help of other"]
    assert (
        "triggers from its tools, as the tap starter has them: get current time in a specific "
        "timezone" in said.out
    )
    assert "Switched on by name alone, as their tools are not known yet: other" in said.out


def test_a_server_that_has_run_here_gets_triggers_from_what_it_listed(
    user: Importer, tmp_path: Path
) -> None:
    user.servers(boats={"command": "python3", "args": ["-c", "boats"]})
    files = definition(OwnServer("boats", ["python3", "-c", "boats"]))
    spec = read_capability(TapName("own"), CapabilityFiles(CapabilityName("boats"), "boats", files))
    assert spec.capability is not None
    (server,) = spec.capability.servers
    tool = ToolDefinition(
        ToolName("count"), b'{"name":"count","description":"Count the boats in the harbour."}'
    )
    lists = ToolLists(user.capd_home / "cache/tools")
    trio.run(lists.keep, server_identity(server), server.name, "1", [tool])

    said = user.capd("import", "--yes", "--json")

    (found,) = json.loads(said.out)["servers"]
    assert found["triggers_from_tools"] == ["count the boats in the harbour"]
    assert user.triggers("boats") == found["triggers"]


def test_a_second_import_overwrites_no_trigger_of_a_person(user: Importer) -> None:
    user.servers(clock={"command": "uvx", "args": ["mcp-server-time"]})
    user.capd("import", "--yes")
    file = user.config / "own/capabilities/clock/config.toml"
    file.write_text('triggers = ["what time is it on the moon", "use clock", "ask clock"]\n')

    user.capd("import", "--yes")

    assert user.triggers("clock") == ["what time is it on the moon", "use clock", "ask clock"]


def test_what_a_client_has_switched_off_stays_off(user: Importer) -> None:
    user.servers(one={"command": "a", "disabled": True})
    (user.home / ".claude.json").write_text(
        json.dumps(
            {
                "mcpServers": {"two": {"command": "b"}, "three": {"command": "c"}},
                "projects": {
                    str(user.project): {
                        "disabledMcpServers": ["two"],
                        "disabledMcpjsonServers": ["four"],
                    }
                },
            }
        )
    )
    (user.project / ".mcp.json").write_text('{"mcpServers": {"four": {"command": "d"}}}')

    said = user.capd("import", "--project", "--yes")

    assert list(user.catalog()) == ["three"]
    assert said.out.count("it is switched off there") == 3


def test_all_that_a_file_of_the_project_sets_is_shown_before_it_is_agreed_to(
    user: Importer,
) -> None:
    user.servers(mine={"command": "uvx", "args": ["mine"], "env": {"MODE": "quiet"}})
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vX4zA7cF0iL3oR6"
    stdio = {
        "command": "npx",
        "args": ["-y", "server@1.0.0"],
        "env": {
            "NODE_OPTIONS": "--require ${workspaceFolder}/\u202e.js",
            "npm_config_registry": "http://evil.example",
            "GITHUB_TOKEN": secret,
        },
    }
    remote = {"type": "http", "url": "https://far.example/mcp", "headers": {"X-Mode": "all"}}
    (user.project / ".vscode").mkdir()
    (user.project / ".vscode/mcp.json").write_text(
        json.dumps({"servers": {"theirs": stdio, "far": remote}})
    )

    said = user.capd("import", "--project", "--dry-run")

    assert "sets NODE_OPTIONS=--require {{PROJECT}}/\\u202e.js" in said.out
    assert "sets npm_config_registry=http://evil.example" in said.out
    assert "sends X-Mode: all" in said.out
    assert secret not in said.out
    assert "MODE=quiet" not in said.out


def test_a_file_of_the_users_own_is_no_projects_where_that_is_the_home_folder(
    user: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.servers(one={"command": "a"})
    monkeypatch.chdir(user.home)

    said = user.capd("import", "--dry-run")

    assert (said.code, "from Cursor (~/.cursor/mcp.json)" in said.out) == (0, True)
    assert "a file of this project names it" not in said.out


@pytest.mark.parametrize(
    ("arguments", "code", "start"),
    [
        (("import", "nobody"), 2, "Usage: "),
        (
            ("import", "emacs"),
            1,
            "capd: Emacs (mcp.el, gptel) keeps its servers in a place that capd",
        ),
        (("import",), 1, "capd: nothing was imported: there is nobody to ask"),
        (("import", "--json"), 1, "capd: nothing was imported: there is nobody to ask"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    user: Importer, arguments: tuple[str, ...], code: int, start: str
) -> None:
    user.servers(one={"command": "a"})

    said = user.capd(*arguments)

    assert (said.code, said.err[: len(start)]) == (code, start)
    assert not (user.config / "own").exists()


def test_where_there_is_nothing_it_says_so(user: Importer) -> None:
    said = user.capd("import")

    assert (said.code, said.out, said.err) == (0, "0 servers in 0 files\n", "")


def test_one_definition_that_is_written_in_many_ways_is_one_server(user: Importer) -> None:
    user.servers(
        a={"command": "npx", "args": ["-y", "x@1.0.0", "--flag"]},
        b={"command": "npx", "args": ["--yes", "x@1.0.0", "--flag"]},
        c={"command": "/opt/node/bin/npx", "args": ["x@1.0.0", "--flag"], "type": "stdio"},
        d={"command": "cmd", "args": ["/c", "npx", "-y", "x@1.0.0", "--flag"]},
        e={"command": "npx x@1.0.0 --flag"},
    )

    user.capd("import", "--yes")

    assert list(user.catalog()) == ["a"]


def test_what_differs_in_what_counts_is_more_than_one_server(user: Importer) -> None:
    user.servers(
        a={"command": "npx", "args": ["x@1.0.0"]},
        b={"command": "npx", "args": ["x@2.0.0"]},
        c={"command": "npx", "args": ["x@1.0.0", "more"]},
        d={"command": "npx", "args": ["x@1.0.0"], "env": {"MODE": "1"}},
        e={"command": "npx", "args": ["x@1.0.0"], "env": {"MODE": "2"}},
        f={"command": "npx", "args": ["x@1.0.0"], "cwd": "/srv"},
    )

    said = user.capd("import", "--yes")

    assert list(user.catalog()) == ["a", "b", "c", "d", "e", "f"]
    assert "as a, of another version: 2.0.0, not 1.0.0" in said.out
    assert "as d, with another MODE" in said.out


def test_one_key_with_two_values_has_a_key_for_each(user: Importer) -> None:
    user.servers(
        one={"command": "one", "env": {"API_KEY": "first-value"}},
        two={"command": "two", "env": {"API_KEY": "second-value"}},
        three={"command": "three", "env": {"API_KEY": "first-value"}},
    )

    user.capd("import", "--yes")

    assert user.secrets() == {"API_KEY": "first-value", "TWO_API_KEY": "second-value"}
    assert [user.server(name)["env"]["API_KEY"] for name in ("one", "two", "three")] == [
        "{{ENV:API_KEY}}",
        "{{ENV:TWO_API_KEY}}",
        "{{ENV:API_KEY}}",
    ]


def test_a_value_of_the_store_or_of_the_environment_stays_as_it_is(user: Importer) -> None:
    store = user.config / "secrets.env"
    store.parent.mkdir()
    store.write_text("# mine\nAPI_KEY=kept\n")
    store.chmod(0o600)
    user.env["OTHER_TOKEN"] = "of the shell"
    user.servers(
        one={"command": "one", "env": {"API_KEY": "another"}},
        two={"command": "two", "env": {"OTHER_TOKEN": "its own"}},
    )

    user.capd("import", "--yes")

    assert store.read_text().startswith("# mine\nAPI_KEY=kept\n")
    assert user.secrets() == {
        "API_KEY": "kept",
        "ONE_API_KEY": "another",
        "TWO_OTHER_TOKEN": "its own",
    }


def test_where_there_is_a_keyring_that_is_the_store(user: Importer) -> None:
    ring = user.folder / "ring.json"
    ring.write_text('{"capd OLD_TOKEN": "kept"}')
    home = Home(user.capd_home)
    home.env |= user.env | {
        "PYTHON_KEYRING_BACKEND": "file_keyring.FileKeyring",
        "CAPD_TEST_KEYRING": str(ring),
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }
    user.servers(one={"command": "one", "env": {"OLD_TOKEN": "other", "API_KEY": "its own"}})

    done = home.capd("import", "--yes")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(ring.read_text()) == {
        "capd OLD_TOKEN": "kept",
        "capd ONE_OLD_TOKEN": "other",
        "capd API_KEY": "its own",
    }
    assert not (user.config / "secrets.env").exists()
    assert "API_KEY: into the keyring\n" in done.stdout


def test_a_store_that_others_can_read_stops_it_before_anything_is_written(user: Importer) -> None:
    store = user.config / "secrets.env"
    store.parent.mkdir()
    store.write_text("A=1\n")
    store.chmod(0o644)
    user.servers(one={"command": "one", "env": {"API_KEY": "secret-value"}})

    said = user.capd("import", "--yes")

    assert said.code == 1
    assert "others may read it: chmod 600" in said.err
    assert [path.name for path in user.config.iterdir()] == ["secrets.env"]
    assert store.read_text() == "A=1\n"


def test_what_fails_half_way_leaves_nothing_behind(
    user: Importer, monkeypatch: pytest.MonkeyPatch
) -> None:
    user.servers(
        one={"command": "one", "env": {"API_KEY": "first-value"}},
        two={"command": "two", "env": {"API_KEY": "second-value"}},
    )
    (user.config / "own" / "capabilities").mkdir(parents=True)
    (user.config / "taps.toml").write_text('[[taps]]\nname = "own"\npath = "/elsewhere"\n')

    said = user.capd("import", "--yes")

    assert (said.code, said.err.splitlines()[0]) == (
        1,
        "capd: the name `own` is taken by the tap at /elsewhere",
    )
    assert list((user.config / "own" / "capabilities").iterdir()) == []
    assert user.secrets() == {}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("github.com/modelcontextprotocol/servers/tree/main/src/git", "git"),
        ("My Great Server!", "my-great-server"),
        ("a__b", "a_b"),
        ("-x-", "x"),
        ("x" * 80, "x" * 64),
        ("日本", "sqlite"),
        ("server", "sqlite"),
    ],
)
def test_a_server_gets_a_name_that_capd_takes(user: Importer, given: str, name: str) -> None:
    user.servers(
        ".cursor/mcp.json", **{given: {"command": "uvx", "args": ["mcp-server-sqlite==1.0.0"]}}
    )

    user.capd("import", "--yes")

    assert list(user.catalog()) == [name]


def test_a_name_that_is_taken_gets_a_number(user: Importer) -> None:
    user.servers(notes={"command": "one"}, Notes={"command": "two"})
    user.capd("add", "notes-2", "--", "three")

    user.capd("import", "--yes")

    assert list(user.catalog()) == ["notes", "notes-2", "notes-3"]


def test_it_is_asked_for_by_its_name_and_by_that_of_its_package_or_host(user: Importer) -> None:
    user.servers(
        mine={"command": "uvx", "args": ["mcp-server-sqlite==1.0.0"]},
        tracker={"url": "https://mcp.linear.example/mcp"},
    )

    user.capd("import", "--yes")

    triggers = {name: each["config.toml"]["triggers"] for name, each in user.catalog().items()}
    assert triggers == {
        "mine": ["use mine", "ask mine", "with the help of mine", "use sqlite", "ask sqlite"],
        "tracker": [
            "use tracker",
            "ask tracker",
            "with the help of tracker",
            "use linear",
            "ask linear",
        ],
    }


def test_who_takes_the_place_of_a_built_in_capability_is_asked_for_as_that_is(
    user: Importer,
) -> None:
    caps = [
        {"tap": "starter", "name": "time", "routable": True, "triggers": ["what time is it"]},
        {"tap": "theirs", "name": "notes", "routable": True, "triggers": ["my notes"]},
    ]
    daemon = FakeDaemon(
        user.capd_home / "run" / "capd.sock", {"caps": {"capabilities": caps}, "reload": {}}
    )
    user.servers(time={"command": "clock"}, notes={"command": "notes"})

    try:
        user.capd("import", "--yes")
    finally:
        daemon.close()

    assert {name: each["config.toml"]["triggers"][0] for name, each in user.catalog().items()} == {
        "time": "what time is it",
        "notes": "use notes",
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "/opt/capd-mcp"},
        {"command": "capd", "args": ["mcp"]},
        {"command": "python3", "args": ["-P", "-m", "capd_client.entry", "mcp"]},
        {"command": "python3", "args": ["-I", "-S", "/opt/lib/capd_client/launch.py"]},
        {"url": "unix:///run/user/1000/capd/capd.sock#/mcp"},
    ],
)
def test_capd_itself_is_nothing_to_import(user: Importer, entry: dict[str, Any]) -> None:
    user.servers(anything=entry)

    said = user.capd("import", "--json", "--dry-run")

    document = json.loads(said.out)
    assert (document["servers"], document["left_out"]) == ([], [])


def test_the_answer_for_programs_has_no_value_of_a_secret(user: Importer) -> None:
    path = user.servers(one={"command": "one", "args": ["--token", "s3cr3t-value"]}, two={})

    said = user.capd("import", "--json", "--yes")

    origin = {"client": "cursor", "file": str(path)}
    assert json.loads(said.out) == {
        "schema": 1,
        "done": True,
        "files": 1,
        "servers": [
            {
                "name": "one",
                "state": "added",
                "command": ["one", "--token", "{{ENV:ONE_TOKEN}}"],
                "url": "",
                "env": {},
                "headers": {},
                "from": [{**origin, "name": "one"}],
                "secrets": ["ONE_TOKEN"],
                "missing": [],
                "notes": ["its command has a secret, which lists of processes show"],
                "triggers": ["use one", "ask one", "with the help of one"],
                "triggers_from_tools": [],
            }
        ],
        "left_out": [
            {**origin, "name": "two", "reason": "it has neither a command nor an address"}
        ],
        "unreadable": [],
        "replaced": [],
    }


_DEEP = '{"mcpServers": {"a": ' + "[" * 500 + "]" * 500 + "}}"
_TEXTS = ("{", "[]", '{"mcpServers": []}', '{"mcpServers": {"a": "canary"}}', '"canary"', "\x00")


@pytest.mark.parametrize("text", [*_TEXTS, "1", _DEEP, '{"a": 1} canary', "canary: ["])
@pytest.mark.parametrize(
    "name", [".cursor/mcp.json", ".codex/config.toml", ".continue/config.yaml"]
)
def test_a_file_that_says_nothing_leaves_the_others_alone(
    user: Importer, name: str, text: str
) -> None:
    user.file(name, text)
    user.servers(".junie/mcp/mcp.json", good={"command": "good"})

    said = user.capd("import", "--yes")

    assert (said.code, list(user.catalog())) == (0, ["good"])
    assert "canary" not in said.out + said.err


@pytest.mark.parametrize(
    "entry",
    [
        {"command": 5},
        {"command": "x", "args": "y"},
        {"command": "x", "args": [{}]},
        {"command": "x", "args": ["\u0000"]},
        {"command": "x", "env": []},
        {"command": "x", "env": {"A B": "1"}},
        {"command": "x", "env": {"A": {}}},
        {"command": "x", "env": {"TOKEN": "\ud800"}},
        {"command": "x", "env": {"TOKEN": "a\u0000b"}},
        {"url": 5},
        {"url": "ftp://x"},
        {"url": "https://x", "headers": {"A": None}},
        {"url": "https://x", "headers": []},
        {"type": [], "command": ["x", None]},
        {"command": "'"},
        {"command": "x", "cwd": 5},
        {"command": {"path": None}},
        {"command": "x", "args": ["\ud800"]},
        {"command": "x", "env": {"A": "\u0000"}},
        {"command": "x", "description": "\ud800", "tools": ["\ud800"]},
        {"url": "${env:BASE}/mcp"},
        {"url": "https://x", "headers": {"a b": "1"}},
        {"url": "https://x", "headers": {"A": "\ud800"}},
        {"command": "x", "env": {"TOKEN": "a\nb\r\n'\\"}},
        {"command": "x", "args": [True, 1, 1.5]},
    ],
    ids=str,
)
def test_an_entry_of_any_form_leaves_the_others_alone(
    user: Importer, entry: dict[str, Any]
) -> None:
    user.servers(odd=entry, good={"command": "good"})

    said = user.capd("import", "--yes")

    assert (said.code, "good" in user.catalog()) == (0, True)


def test_a_text_that_is_small_and_means_a_lot_costs_nothing(user: Importer) -> None:
    anchors = "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]\n" for n in range(1, 12))
    bomb = "mcpServers:\n  - {name: *b11, command: x, args: *b11, tools: *b11, type: *b11}\n"
    user.file(".continue/config.yaml", f"b0: &b0 [canary]\n{anchors}{bomb}")
    user.servers(good={"command": "good"})

    said = user.capd("import", "--yes")

    assert (said.code, list(user.catalog())) == (0, ["good"])
    assert "server 1, of Continue (~/.continue/config.yaml): its command is not a list" in said.out


@pytest.mark.parametrize(
    "text", ["a: !!int canary", "a: !!timestamp canary", "? [a]\n: b", "&a *a"]
)
def test_what_only_yaml_can_say_is_told_with_no_word_of_it(user: Importer, text: str) -> None:
    user.file(".continue/config.yaml", text)

    said = user.capd("import", "--yes")

    assert said.code == 0
    assert "canary" not in said.out + said.err


def test_what_was_added_by_hand_is_known_again(user: Importer) -> None:
    tap = OwnTap(str(user.config))
    user.capd("add", "mine", "--env", "API_KEY", "--", "npx", "-y", "x@1.0.0")
    user.servers(
        theirs={"command": "npx", "args": ["x@1.0.0"], "env": {"API_KEY": "${env:API_KEY}"}}
    )

    said = user.capd("import", "--yes")

    assert (said.code, tap.names()) == (0, ["mine"])
    assert "mine  there already" in said.out
