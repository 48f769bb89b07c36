"""One command adds a server of the user's own, and one command removes it."""

import sys
from pathlib import Path

from whole_daemon import PLAIN_SERVER, Home, wait_for


def test_a_server_is_added_switched_on_called_and_taken_away(shipped_home: Home) -> None:
    home = shipped_home
    home.start()
    command = [sys.executable, "-I", str(PLAIN_SERVER), home.tag]
    with home.shim("one") as editor:
        added = home.capd("add", "notes", "--trigger", "look into my notes", "--", *command)
        enabled = home.capd("enable", "notes", "--session", "one")
        answer = editor.call("notes__echo", {"text": "mine"})
        page = home.capd("status").stdout
        disabled = home.capd("disable", "notes", "--session", "one")

        removed = home.capd("remove", "notes")

        wait_for(lambda: home.servers() == [])
        assert [each.returncode for each in (added, enabled, disabled, removed)] == [0] * 4
        assert added.stdout.splitlines()[1:] == [
            "Switch it on with: capd enable notes, or by saying one of its triggers."
        ]
        assert answer["content"][0]["text"].endswith(" mine")
        assert "  notes  ready, " in page
        assert "MCP active: 1/4 (notes)" in page
        assert "notes" not in [each["name"] for each in home.ask("caps")["capabilities"]]
        assert [each["name"] for each in home.ask("status")["taps"]] == ["starter"]
    assert not Path(home.folder, "config", "own").exists()


def test_a_server_without_words_is_switched_on_by_what_its_tools_do(shipped_home: Home) -> None:
    home = shipped_home
    home.start()
    said = "say shout and the process's id"
    home.capd("add", "notes", "--", sys.executable, "-I", str(PLAIN_SERVER), home.tag)
    with home.shim("one") as editor:
        before = home.ask("turn", session="one", text=said)["outcome"]
        home.capd("enable", "notes", "--session", "one")
        editor.call("notes__echo", {"text": "mine"})
        home.capd("disable", "notes", "--session", "one")

        after = wait_for(
            lambda: (t := home.ask("turn", session="one", text=said))["outcome"] == "activate" and t
        )

    assert before != "activate"
    assert after["name"] == "notes"
