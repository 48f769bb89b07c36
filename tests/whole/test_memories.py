"""A call that repeats a known mistake never reaches its server; all others do."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from whole_daemon import Home

SERVER = Path(__file__).with_name("picky_server.py")
CORRECTION = "Label area:goal does not exist: use area:goals."
MEMORY = f"""kind = "corrective"
content = "{CORRECTION}"
tool = "issues:create"
refuses = true

[arguments]
required = ["labels"]
properties.labels = {{ type = "array", contains = {{ const = "area:goal" }} }}
"""
CALLS = 100
WORDS: tuple[str, ...] = (
    "bug",
    "area:goals",
    "area:goal2",
    "AREA:GOAL",
    " area:goal",
    "goal",
    "area:",
    "ärea:goal",
)


def wrong(choice: random.Random) -> dict[str, Any]:
    """Return arguments with the mistake among others, in any place."""
    labels: list[str] = choice.choices(WORDS, k=choice.randrange(6))
    labels.insert(choice.randrange(len(labels) + 1), "area:goal")
    more = {
        f"field{n}": choice.choice([1, None, "area:goal", [1]]) for n in range(choice.randrange(4))
    }
    members = list({"labels": labels, **more}.items())
    choice.shuffle(members)
    return dict(members)


def near(choice: random.Random) -> dict[str, Any]:
    """Return arguments that are right, and as near to the mistake as can be."""
    labels: Any = choice.choices(WORDS, k=choice.randrange(6))
    right = [
        {"labels": labels, "title": "area:goal"},
        {"title": "area:goal"},
        {"label": ["area:goal"], "labels": labels},
        {"labels": [*labels, ["area:goal"]]},
        {"labels": "area:goal"},
        {"labels": {"0": "area:goal"}},
    ]
    return {**choice.choice(right), "n": choice.randrange(1000)}


@pytest.mark.real
def test_wrong_calls_are_refused_with_the_correction_and_near_misses_pass(home: Home) -> None:
    journal = home.folder / "calls"
    home.capability("issues", [sys.executable, "-I", str(SERVER), str(journal), home.tag])
    memories = home.folder / "tap" / "memories"
    memories.mkdir()
    (memories / "labels.toml").write_text(MEMORY)
    home.start()
    editor = home.shim("one")
    enabled = editor.call("capability", {"action": "enable", "name": "issues"})
    choice = random.Random(7)
    wrongs = [wrong(choice) for _ in range(CALLS)]
    rights = [near(choice) for _ in range(CALLS)]

    answers = [
        (editor.call("issues__create", bad), editor.call("issues__create", good))
        for bad, good in zip(wrongs, rights, strict=True)
    ]

    refused = {answer[0]["content"][0]["text"] for answer in answers}
    (tool,) = [each for each in editor.tools() if each["name"] == "issues__create"]
    assert enabled["content"][1]["text"].endswith(f"Correction (issues:create): {CORRECTION}")
    assert tool["description"] == f"Create an issue.\nKnown mistake: {CORRECTION}"
    assert [answer[0]["isError"] for answer in answers] == [True] * CALLS
    assert len(refused) == 1
    assert CORRECTION in refused.pop()
    assert [answer[1]["isError"] for answer in answers] == [False] * CALLS
    assert [json.loads(line) for line in journal.read_text().splitlines()] == rights
    editor.leave()


@pytest.mark.real
def test_what_a_person_switched_on_is_told_with_the_next_result_and_no_other(home: Home) -> None:
    home.capability("issues", [sys.executable, "-I", str(SERVER), "/dev/null", home.tag])
    memories = home.folder / "tap" / "memories"
    memories.mkdir()
    (memories / "labels.toml").write_text(MEMORY)
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="issues")

    results = [editor.call("issues__create", {"n": n}) for n in range(3)]

    told = {
        "type": "text",
        "text": f"Known from before:\n- Correction (issues:create): {CORRECTION}",
    }
    created = [{"type": "text", "text": f"created {n}"} for n in (1, 2, 3)]
    assert [result["content"] for result in results] == [
        [created[0], told],
        [created[1]],
        [created[2]],
    ]
    editor.leave()
