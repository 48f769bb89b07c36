"""The tokens of memories and 42 tools in a real client, before and after a match."""

import contextlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.tokens.token_counts import count
from whole_daemon import wait_for

from .lab import Dialogue, Lab
from .wordy_server import VERBS, listed

pytestmark = pytest.mark.clients

SERVER = Path(__file__).with_name("wordy_server.py")
THINGS = (
    *("lantern", "orchard", "harbour", "violin", "glacier", "bakery", "tractor"),
    *("curtain", "puzzle", "beehive", "museum", "kettle", "marble", "anchor"),
)
"""Fourteen capabilities of three tools each; the first seven have a memory."""
REMEMBERED = THINGS[:7]
PREFIX = "mcp__capd__"
STREAMS = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")


def content(thing: str) -> str:
    """Return a memory of 1,000 tokens."""
    lines = (f"The {thing} of day {n} was kept in row {n % 7} by the keeper." for n in range(60))
    return " ".join(lines)


@pytest.fixture
def lab(claude: Path, start_lab: Callable[..., Lab]) -> Lab:
    made = start_lab([{"text": "good morning"}, {"text": "done"}, {"text": "bye"}])
    made.add_claude(claude)
    return made


def texts(body: dict[str, Any]) -> str:
    """Return all text for the model in a request, without its tools."""
    return json.dumps([body.get("system"), body["messages"]], ensure_ascii=False)


def said(text: str) -> dict[str, Any]:
    return {"type": "user", "message": {"role": "user", "content": text}}


def test_before_a_match_there_is_next_to_nothing_and_after_it_a_tenth(lab: Lab) -> None:
    home = lab.home
    for thing in THINGS:
        home.capability(thing, [sys.executable, "-I", str(SERVER), thing, home.tag])
    folder = home.folder / "tap/memories"
    folder.mkdir()
    for thing in REMEMBERED:
        text = f'kind = "procedural"\ncapability = "{thing}"\ncontent = "{content(thing)}"\n'
        (folder / f"{thing}.toml").write_text(text)
    # Those 42 alone.
    taps = home.folder / "config/taps.toml"
    taps.write_text(f"starter = false\n{taps.read_text()}")
    home.start()
    with home.shim("warming") as warm:
        wait_for(lab.is_ready, 120)
        instructions = warm.ask("initialize", INITIALIZE)["instructions"]
        home.ask("enable", name="lantern", session="warming")
        # From here on the model has nothing to do but what it is asked.
        wait_for(lambda: home.ask("search", query="lantern")["mode"] == "fused", 120)
    tools = [listed(thing, verb) for thing in THINGS for verb in VERBS]
    every_tool = sum(count(json.dumps(tool)) for tool in tools)
    wait_for(lambda: not home.ask("sessions")["sessions"])
    memories = [each["tokens"] for each in home.ask("memories")["memories"]]
    lab.install("claude")

    with contextlib.closing(Dialogue(lab, "claude", "-p", *STREAMS)) as claude:
        claude.say(said("Good morning to you, and a fine day."))
        claude.hear("result")
        for words in ("please run lantern", "thank you very much"):
            # It lists again between the two at the latest.
            claude.say(said(words))
            claude.hear("result")

    before, after = lab.model.bodies()[0], lab.model.bodies()[-1]
    own = [tool for tool in before["tools"] if tool["name"].startswith(PREFIX)]
    new = [tool for tool in after["tools"] if "__lantern__" in tool["name"]]
    everything = every_tool + sum(memories)
    told = content("lantern")
    assert [tool["name"] for tool in own if "__" in tool["name"].removeprefix(PREFIX)] == []
    assert instructions.split(". ")[0] in texts(before)
    assert not any(f"The {thing} of day" in texts(before) for thing in THINGS)
    assert count(instructions) <= 400
    assert told in texts(after)
    assert not any(content(thing) in texts(after) for thing in REMEMBERED[1:])
    assert (len(new), len(tools)) == (3, 42)
    assert [len(memories), all(900 <= each <= 1200 for each in memories)] == [7, True]
    brought = sum(count(json.dumps(tool)) for tool in new) + count(told)
    print(f"all {everything}, before {count(instructions)}, after {brought}")
    assert brought + 120 <= everything / 10


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test-editor", "version": "1"},
}
