"""The index on the wire, in its file, and in the output of `capd`."""

import sys
from pathlib import Path

import pytest
import yaml

from capd.adapters.tokens.token_counts import count
from whole_daemon import OWN_TOOLS, Home, wait_for

from .test_tokens import Recorded

pytestmark = pytest.mark.model

MANY_SERVER = Path(__file__).parent / "many_server.py"
VERBS = ("measure", "change", "delete", "read", "write", "find")
SERVERS = 7
MOST_BEYOND_OWN_TOOLS = 400


def test_42_tools_cost_at_most_400_tokens_before_any_match_and_one_call_each_after(
    shipped_home: Home,
) -> None:
    home = shipped_home
    for number in range(SERVERS):
        tools = ",".join(f"{verb}_thing_{number}" for verb in VERBS)
        argv = [sys.executable, "-I", str(MANY_SERVER), f"s{number}", tools, home.tag]
        home.capability(f"things-{number}", argv)
    home.start()
    # Not by `capd index`, which would fetch the servers of the tap that comes with capd.
    first = home.shim("first")
    for number in range(SERVERS):
        home.ask("enable", session="first", name=f"things-{number}")
    first.leave()
    wait_for(lambda: home.ask("search", query="select:things_6__find_thing_6")["hits"])
    indexed = home.capd("index", "--known")
    file = home.folder / "data/capability-index.yaml"
    written = yaml.safe_load(file.read_text())
    before = file.stat()
    again = home.capd("index", "--known")

    editor = Recorded(home, "one")
    editor.tools()
    (listed,) = editor.lists
    sessions = {each["key"]: each for each in home.ask("sessions")["sessions"]}
    shown = sessions["one"]["index"]
    page = home.capd("status")
    turned = home.ask("turn", session="one", text="please run things-3 and things-4")

    assert "written anew" in indexed.stdout, indexed.stderr
    entry = written["capabilities"]["mine/things-3"]
    assert entry["cost"]["tools"] == len(VERBS)
    assert entry["elements"]["tools"] == [f"things_3__{verb}_thing_3" for verb in VERBS]
    assert "as it was" in again.stdout, again.stdout + again.stderr
    assert file.stat() == before
    assert len(listed) == len(OWN_TOOLS)
    assert "things-3" in editor.instructions
    assert count(editor.instructions) <= MOST_BEYOND_OWN_TOOLS
    map_ = editor.instructions[editor.instructions.index("Installed (verb") :]
    assert count(map_) == shown["tokens"] <= 150
    assert shown["listed"] + shown["left_out"] >= SERVERS
    assert f"index: {shown['listed']} capabilities in {shown['tokens']} tokens" in page.stdout
    assert count(turned["suggestion"]) <= 60
