"""`capd memory` with a real daemon: add, list, edit, suggest and forget."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import Home, wait_for

SERVER = Path(__file__).parents[1] / "whole" / "picky_server.py"
EDITOR = "import sys; p = sys.argv[1]; t = open(p).read(); open(p, 'w').write({!r})"


@pytest.fixture
def home(tmp_path: Path) -> Any:
    made = Home(tmp_path)
    made.capability(
        "issues", [sys.executable, "-I", str(SERVER), str(tmp_path / "calls"), made.tag]
    )
    made.start()
    yield made
    made.close()


def said(home: Home, *arguments: str) -> str:
    done = home.capd("memory", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def memories(home: Home) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(said(home, "list", "--json"))["memories"]
    return found


def created(editor: McpHost, labels: list[str]) -> tuple[str, bool]:
    result = editor.call("issues__create", {"labels": labels})
    return result["content"][0]["text"], result.get("isError", False)


def enable(editor: McpHost) -> None:
    editor.call("capability", {"action": "enable", "name": "issues"})


@pytest.mark.real
def test_a_memory_lives_from_being_written_down_to_being_forgotten(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = said(
        home,
        *("add", "There is no label area:goal: use goals.", "--tool", "issues:create"),
        *("--when", "labels=area:go*", "--refuse"),
    )
    name, file = "there-is-no-label-area-goal-use-goals", home.folder / "data/memories"
    editor = home.shim("one")
    enable(editor)
    wait_for(lambda: memories(home)[0]["told"])

    refused = created(editor, ["area:goal", "bug"])
    right = created(editor, ["goals"])

    (listed,) = memories(home)
    assert added == f"{name} is written down: {file / name}.toml\n"
    assert refused[0].startswith("Not called: these arguments repeat a known mistake.")
    assert refused[1]
    assert right == ("created 1", False)
    assert (listed["told"], listed["refused"], listed["worked"]) == (1, 1, 1)
    assert "created 1" not in said(home, "list", "--tool", "issues")
    text = (file / f"{name}.toml").read_text()
    program = EDITOR.format(text.replace("use goals", "use goals, please"))
    home.env["EDITOR"] = f"{sys.executable} -c {json.dumps(program)}"
    assert said(home, "edit", name) == f"{name} is changed: {file / name}.toml\n"
    assert memories(home)[0]["content"].endswith("use goals, please.")
    assert said(home, "forget", name, "--yes").startswith(
        f"{name} is forgotten: {file}/.forgotten/"
    )
    assert memories(home) == []
    editor.leave()


@pytest.mark.real
def test_what_failed_and_then_worked_is_suggested_and_written_down(home: Home) -> None:
    editor = home.shim("one")
    enable(editor)

    created(editor, ["nothing"])
    created(editor, ["goals"])

    shown = said(home, "suggest")
    accepted = said(home, "suggest", "--accept", "1", "--refuse", "--name", "no-nothing")
    refused = created(editor, ["nothing"])
    assert shown.startswith(
        '1. issues:create, once: `labels` = ["nothing"] failed; ["goals"] worked.\n'
    )
    assert accepted.startswith("no-nothing is written down: ")
    assert refused[0].startswith("Not called: ")
    assert said(home, "suggest").startswith("Nothing is suggested")
    editor.leave()


def test_a_secret_and_a_mistake_without_its_argument_are_refused_with_the_reason(
    home: Home,
) -> None:
    key = "ghp_0123456789abcdefghijABCDEFGHIJ012345"

    secret = home.capd("memory", "add", f"use {key}", "--tool", "issues:create")
    loose = home.capd(
        *("memory", "add", "no", "--tool", "issues:create", "--schema", '{"type": "object"}')
    )
    unknown = home.capd("memory", "forget", "nobody", "--yes")

    assert (secret.returncode, loose.returncode, unknown.returncode) == (1, 1, 1)
    assert "looks like a secret" in secret.stderr
    assert key not in secret.stderr + home.log()
    assert "requires no argument" in loose.stderr
    assert "there is no memory 'nobody' of your own" in unknown.stderr
    assert not list(home.folder.glob("data/memories/*"))


@pytest.mark.real
def test_a_name_is_written_down_as_it_is_spelled_and_one_that_nothing_has_is_said(
    home: Home,
) -> None:
    added = [
        said(home, "add", "A fact.", "--kind", "declarative", "--name", name, "--capability", of)
        for name, of in (("right", "Issues"), ("wrong", "isues"))
    ]

    listed = json.loads(said(home, "list", "--json"))
    warning = "it is never told: no capability is named 'isues'. Near names: issues, files."
    assert [each["capability"] for each in listed["memories"]] == ["issues", "isues"]
    assert [(each["reason"], each["severity"]) for each in listed["findings"]] == [
        (warning, "warning")
    ]
    assert (warning in added[0], warning in added[1]) == (False, True)
    assert "capd memory edit wrong" in added[1]
