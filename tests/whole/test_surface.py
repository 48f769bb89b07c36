"""What a session sees: a real tap on local servers, and five hundred tools."""

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tokenizers import BertWordPieceTokenizer

import capd.adapters.model
from capd_client.mcp_host import McpHost
from whole_daemon import OWN_TOOLS, PLAIN_SERVER, Home, pids_with, wait_for

from .test_results import Wire

pytestmark = pytest.mark.model

MANY_SERVER = Path(__file__).parent / "many_server.py"
# What the public tap's servers offer, as far as its filters name it.
OFFERED = {
    "octobrain": "knowledge,remember,memorize,forget,relate,auto_link",
    "octocode": "graphrag,semantic_search,structural_search,view_signatures",
}


def tokens(text: str | bytes) -> int:
    """Count with a real tokenizer; for JSON it counts more than those of large models do."""
    vocabulary = Path(capd.adapters.model.__file__).with_name("minilm_vocab.txt")
    written = text if isinstance(text, str) else text.decode()
    return len(BertWordPieceTokenizer(str(vocabulary), lowercase=True).encode(written).ids)


def on_local_servers(tap: Path, folder: Path, tag: str) -> None:
    """Copy a tap with each command replaced by a local server of the same name."""
    shutil.copytree(tap, folder, symlinks=True)
    for copied in (folder, *folder.rglob("*")):
        copied.chmod(0o700)
    for file in folder.glob("capabilities/*/*.toml"):
        text = file.read_text()
        name = re.search(r'^name = "([^"]+)"', text, re.MULTILINE)
        if file.name == "config.toml" or name is None or file.is_symlink():
            continue
        tools = OFFERED.get(name[1], "first,second")
        argv = json.dumps(["-I", str(MANY_SERVER), name[1], tools, tag])
        command = f"command = {json.dumps(sys.executable)}"
        text = re.sub(r"^command = .*$", command, text, flags=re.MULTILINE)
        text = re.sub(r"^args = \[[^\]]*\]", f"args = {argv}", text, flags=re.MULTILINE)
        file.write_text(re.sub(r"^require = .*$", "require = []", text, flags=re.MULTILINE))


@pytest.fixture
def editor(home: Home, shared_fixtures: Path) -> McpHost:
    path = shared_fixtures / "data" / "octomind-tap"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    on_local_servers(path, home.folder / "public", home.tag)
    home.start()
    added = home.capd("tap", "add", str(home.folder / "public"))
    assert added.returncode == 0, added.stderr
    return home.shim("one")


def names(editor: McpHost) -> list[str]:
    return [tool["name"] for tool in editor.tools() if tool["name"] not in OWN_TOOLS]


def enable(home: Home, *capabilities: str) -> None:
    for name in capabilities:
        answer = home.ask("enable", session="one", name=name)
        assert answer["ok"], answer["text"]


@pytest.mark.parametrize(("first", "last"), [("knowledge", "webfetch"), ("webfetch", "knowledge")])
def test_a_tool_of_two_capabilities_stays_until_both_are_off(
    home: Home, editor: McpHost, first: str, last: str
) -> None:
    enable(home, "knowledge", "webfetch")

    home.ask("disable", session="one", name=first)
    listed = names(editor)
    said = editor.call("octobrain__knowledge", {"subject": "x"})
    alive = pids_with(home.tag)
    home.ask("disable", session="one", name=last)

    assert "octobrain__knowledge" in listed
    server, tool, pid, _ = said["content"][0]["text"].split(maxsplit=3)
    assert (server, tool) == ("octobrain", "knowledge")
    assert int(pid) in alive
    assert names(editor) == []
    wait_for(lambda: not home.servers())
    # The server itself, and the guard above it.
    wait_for(lambda: not Path("/proc", pid).exists() and not pids_with(home.tag))
    editor.leave()


def test_capabilities_on_one_server_keep_disjoint_tools(home: Home, editor: McpHost) -> None:
    enable(home, "codesearch-graph", "codesearch-structural")
    together = names(editor)
    processes = len(home.servers())

    home.ask("disable", session="one", name="codesearch-structural")
    graph_alone = names(editor)
    enable(home, "codesearch-structural")
    home.ask("disable", session="one", name="codesearch-graph")

    graph = ["octocode__graphrag"]
    structural = ["octocode__structural_search", "octocode__view_signatures"]
    assert together == [*graph, *structural]
    assert graph_alone == graph
    assert names(editor) == structural
    assert (processes, len(home.servers())) == (1, 1)
    editor.leave()


def test_a_second_server_that_fails_leaves_lists_leases_and_processes_as_they_were(
    home: Home,
) -> None:
    home.plain("talk")
    home.plain("pair", server="talk")
    provider = home.folder / "tap/capabilities/pair/default.toml"
    provider.write_text(
        provider.read_text()
        + f'[[mcp.servers]]\nname = "gone"\ncommand = {json.dumps(sys.executable)}\n'
        + 'args = ["-c", "raise SystemExit(3)"]\n'
    )
    home.start()
    first, second = home.shim("first"), home.shim("second")
    home.ask("enable", session="first", name="talk")

    def seen() -> list[Any]:
        leases = [(s["name"], s["pid"], s["leases"]) for s in home.servers()]
        return [first.tools(), second.tools(), leases, sorted(pids_with(home.tag))]

    before = seen()

    answers = [home.ask("enable", session=key, name="pair") for key in ("first", "second")]

    assert [answer["ok"] for answer in answers] == [False, False]
    wait_for(lambda: seen() == before)
    first.leave()
    second.leave()


@pytest.mark.real
def test_the_same_message_twice_is_one_change_and_the_second_list_has_the_same_bytes(
    home: Home,
) -> None:
    home.plain("talk")
    home.start()
    wire = Wire(home.socket, session="one")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready")
    first = home.ask("turn", session="one", text="please run talk")
    listed = wire.line("tools/list")

    second = home.ask("turn", session="one", text="please run talk")

    assert first["changed"]["added"] == ["talk__echo", "talk__shout"]
    assert second["changed"] == {"added": [], "removed": []}
    assert wire.line("tools/list") == listed
    assert b'"talk__echo"' in listed
    assert wire.heard == ["notifications/tools/list_changed"]
    wire.close()


VERBS = ["find", "list", "create", "delete", "update", "move", "copy", "count", "check", "merge"]
THINGS = ["issue", "invoice", "branch", "contact", "flight", "recipe", "photo", "song", "bug",
          "page", "ticket", "order", "device", "table", "file", "event", "patient", "court",
          "planet", "vote"]  # fmt: skip


CROWD = {
    thing: [
        *(f"{verb}_{thing}" for verb in VERBS),
        *(f"{verb}_{thing}_{part}" for verb in VERBS[:5] for part in ("note", "tag", "log")),
    ]
    for thing in THINGS
}


@pytest.fixture
def crowd(home: Home) -> McpHost:
    """Twenty servers with twenty-five tools each, all known, none of them running."""
    for thing, tools in CROWD.items():
        argv = [sys.executable, "-I", str(MANY_SERVER), thing, ",".join(tools), home.tag]
        home.capability(thing, argv)
    home.start()
    # Not `capd index`: it asks the starter tap's servers as well, which come from the network.
    first = home.shim("first")
    for thing in THINGS:
        home.ask("enable", session="first", name=thing)
    first.leave()
    wait_for(partial(is_known, home, "bug__merge_bug"))
    wait_for(lambda: not home.servers())
    return home.shim("one")


def test_five_hundred_tools_cost_a_short_list_and_each_is_one_step_away(
    home: Home, crowd: McpHost
) -> None:
    listed = crowd.tools()
    wanted = [f"{thing}__{tool}" for thing, tools in CROWD.items() for tool in tools]

    found = [crowd.call("tool_search", {"query": f"select:{name}"}) for name in wanted]
    processes = home.servers()
    direct = [crowd.call(name, {"subject": "x"}) for name in wanted]

    assert len(listed) <= 10
    assert tokens(json.dumps(listed)) < 2000
    assert len(wanted) == 500
    assert processes == []
    searched = [result["content"][0]["text"].splitlines()[1] for result in found]
    assert searched == [f"## {name}" for name in wanted]
    called = [result["content"][0]["text"].split()[:2] for result in direct]
    assert called == [list(name.partition("__")[::2]) for name in wanted]
    assert len(crowd.tools()) <= len(OWN_TOOLS) + 24
    crowd.leave()


def is_known(home: Home, name: str) -> bool:
    """Tell whether the finder has a tool: the shipped taps' tools are counted at once."""
    return bool(home.ask("search", query=f"select:{name}")["hits"])


def test_pins_beyond_a_clients_limit_are_refused_and_the_first_ones_kept(home: Home) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text('[surface]\npins = ["talk:*", "more:*"]\n')
    (config / "clients.toml").write_text('[mine]\nnames = ["test-editor"]\ntool_limit = 5\n')
    home.plain("talk")
    home.capability("more", [sys.executable, "-I", str(PLAIN_SERVER), home.tag, "more"])
    home.start()
    first = home.shim("first")
    for name in ("talk", "more"):
        home.ask("enable", session="first", name=name)
    first.leave()
    wait_for(partial(is_known, home, "talk__echo"))
    wait_for(partial(is_known, home, "more__echo"))

    editor = home.shim("one")
    listed = [tool["name"] for tool in editor.tools()]

    assert len(listed) == 5
    assert listed[:4] == OWN_TOOLS
    assert "pins_refused" in home.log()
    assert editor.call("talk__shout", {"text": "a"})["content"][0]["text"].endswith(" A")
    editor.leave()


def test_what_a_user_denies_is_neither_named_nor_started(home: Home) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    config.joinpath("config.toml").write_text(
        '[policy]\ndeny = ["talk:*"]\n[policy.clients."test-*"]\ndeny = ["more:shout"]\n'
    )
    home.plain("talk")
    home.capability("more", [sys.executable, "-I", str(PLAIN_SERVER), home.tag, "more"])
    home.start()
    editor = home.shim("one")
    refused = home.ask("enable", session="one", name="talk")
    enable(home, "more")
    wait_for(partial(is_known, home, "more__echo"))

    listed = editor.call("capability", {"action": "list"})["content"][0]["text"]
    found = home.capd("search", "shout", "--session", "one", "--json")

    assert (refused["ok"], refused["text"]) == (
        False,
        "Capability 'talk' cannot be switched on: denied by policy: rule 'talk:*' in [policy].",
    )
    assert [line for line in listed.splitlines() if line.startswith("- talk")] == []
    assert "1 more are denied by policy." in listed
    assert names(editor) == ["more__echo"]
    assert [hit["name"] for hit in json.loads(found.stdout)["hits"]] == []
    assert "rule 'more:shout'" in json.loads(found.stdout)["text"]
    assert [entry["name"] for entry in home.servers()] == ["more"]
    editor.leave()
