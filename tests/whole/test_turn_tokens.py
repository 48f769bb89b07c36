"""The tokens that turns add over 300 messages, counted by the real tokenizer."""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from capd.adapters.tokens.token_counts import count
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.model

STARTER = Path(__file__).parents[2] / "taps/starter"
SNAPSHOT_SERVER = Path(__file__).with_name("snapshot_server.py")
MESSAGES = {
    "blind_routing.tune.jsonl": 171,
    "bfcl_queries.tune.jsonl": 65,
    "metatool_negatives.tune.jsonl": 64,
}
"""How many of each file of the development set: 300 in all, evenly spread over the file."""
MOST_TOKENS = 150
EVERY = 10
"""After so many messages, one is thanked for."""
_SERVER = re.compile(r'^\[\[mcp\.servers\]\]\nname = "([^"]+)"', re.MULTILINE)
_COMMAND = re.compile(r"^command = .*$", re.MULTILINE)
_ARGUMENTS = re.compile(r"^args = \[[^\]]*\]", re.MULTILINE)
_DEPENDENCIES = re.compile(r"^\[deps\]\n(?:[^\[\n].*\n)*", re.MULTILINE)


def messages(data: Path) -> list[str]:
    chosen: list[str] = []
    for name, wanted in MESSAGES.items():
        lines = (data / name).read_text(encoding="utf-8").splitlines()
        texts = [str(json.loads(line)["text"]) for line in lines]
        chosen += [texts[at * len(texts) // wanted] for at in range(wanted)]
    return chosen


@pytest.fixture
def ready(home: Home) -> Home:
    """Start a daemon on the starter tap, with fake servers that list the tap's tools."""
    tap = home.folder / "starter"
    shutil.copytree(STARTER / "capabilities", tap / "capabilities")
    for file in tap.glob("capabilities/*/default.toml"):
        text = file.read_text(encoding="utf-8")
        server = _SERVER.search(text)
        if server is None:
            continue
        given = ["-I", str(SNAPSHOT_SERVER), str(STARTER / "tools.json"), server[1], home.tag]
        text = _COMMAND.sub(f"command = {json.dumps(sys.executable)}", text)
        text = _ARGUMENTS.sub(f"args = {json.dumps(given)}", text)
        # What is downloaded for a server that is played here would be for nothing.
        file.write_text(_DEPENDENCIES.sub("", text), encoding="utf-8")
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "taps.toml").write_text(
        f'starter = false\n[[taps]]\nname = "shipped"\npath = {json.dumps(str(tap))}\n'
    )
    # What routing learns of a session is no part of this, nor is a list that changes.
    (config / "config.toml").write_text('[surface]\nmode = "stable"\n')
    home.env["CAPD_LINGER"] = "600"
    home.start()
    with home.shim("warming"):
        wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready", 300)
        asked = {"session": "warming", "text": "show me the git log for this repo"}
        wait_for(lambda: home.ask("turn", **asked)["outcome"] == "activate", 300)
    return home


@pytest.mark.timeout(1200)
def test_300_messages_get_at_most_150_tokens_each_and_thanks_gets_none(
    ready: Home, shared_fixtures: Path
) -> None:
    texts = messages(shared_fixtures / "data/routing")
    brought: list[tuple[int, str]] = []
    with ready.shim("said-to") as editor:
        before = editor.ask("tools/list")

        def context(text: str, at: int) -> str:
            # Each in a conversation of its own, which has been told nothing yet.
            prompt = {"client": "test-editor", "client_session": f"c-{at}", "turn": f"{at} {text}"}
            folder = str(ready.folder)
            said = ready.ask("hook", text=text, project=folder, mute=False, patience=60.0, **prompt)
            return str(said["context"])

        for at, text in enumerate(texts):
            brought.append((count(context(text, at)), text))
            if at % EVERY == 0:
                assert context("Thanks!", at) == "", text

        after = editor.ask("tools/list")
    told = [tokens for tokens, _ in brought if tokens]
    print(f"{len(told)} of {len(texts)} messages brought words; the most {max(told)} tokens,")
    print(f"{sum(told) / len(told):.0f} on average of those, {sum(told) / len(texts):.0f} of all")
    assert len(texts) == 300
    assert max(brought)[0] <= MOST_TOKENS, max(brought)
    assert len(told) > 30
    assert after == before
