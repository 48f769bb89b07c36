"""A new conversation gets the project's bootstrap files once, by its hook or a prompt."""

import json
from typing import Any

import pytest

from whole_daemon import Home


def turn(home: Home, editor: Any, name: str, session_id: str = "c-1") -> str:
    # The same words at once would be two hooks of one prompt.
    hook = {
        "prompt": f"hello there my {name} friend",
        "session_id": session_id,
        "cwd": str(home.folder),
    }
    output = json.loads(editor.call("capd_turn", hook)["content"][0]["text"])
    context: str = output.get("hookSpecificOutput", {}).get("additionalContext", "")
    return context


@pytest.mark.real
def test_the_files_are_told_with_the_first_message_and_in_full_by_the_prompt(home: Home) -> None:
    project = home.folder / "project"
    project.mkdir()
    (project / "AGENTS.md").write_text("Be brief.\n")
    (project / "MEMORY.md").write_text("m" * 20_000)
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config/config.toml").write_text(
        "[bootstrap]\nmost_characters = 20000\n"
        f"[projects.{json.dumps(str(project))}]\nbootstrap = true\n"
    )
    home.start()
    editor, other = home.shim("one", project), home.shim("two")

    told = [
        turn(home, editor, "first"),
        turn(home, editor, "second"),
        turn(home, editor, "third", "c-2"),
        turn(home, other, "fourth"),
    ]

    (prompt,) = editor.ask("prompts/list")["prompts"]
    result = editor.ask("prompts/get", {"name": "bootstrap"})
    first = (
        "Files of this project, to be known from the start:\n\n# AGENTS.md\n\nBe brief.\n\nToo "
        "long to be shown here; read them, or use the prompt `bootstrap`: MEMORY.md (20000 "
        "characters)."
    )
    whole = result["messages"][0]["content"]["text"]
    assert told == [first, "", first, ""]
    assert prompt["name"] == "bootstrap"
    assert whole == (
        "Files of this project, to be known from the start:\n\n# AGENTS.md\n\nBe brief.\n\n"
        f"# MEMORY.md\n\n{'m' * 20_000}"
    )
    assert other.ask("prompts/list")["prompts"] == []
    assert '"files":["AGENTS.md","MEMORY.md"],"count":2,"characters":20010' in home.log()
    assert '"files":["MEMORY.md (20000)","AGENTS.md (10)"]' in home.log()
    editor.leave()
    other.leave()
