"""What strangers wrote is shown on a terminal, and commands nothing there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from whole_daemon import PATIENCE_OF_A_COMMAND

from .world import World

pytestmark = pytest.mark.reliability

EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x1b]8;;http://a.test\x1b\\x\u202e\u2066\x9b31m\r\u2028\u200b"
"""Fills the clipboard, clears the screen, hides a link, turns the direction of writing."""
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069]")
SERVER = """
import json, sys
EVIL = %r
print(EVIL, "stderr", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    schema = {"type": "object", "properties": {EVIL: {"description": EVIL}}}
    result = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "prompts": {}},
            "serverInfo": {"name": EVIL, "title": EVIL, "version": EVIL},
            "instructions": EVIL,
        },
        "tools/list": {
            "tools": [
                {"name": "echo", "description": "read a pdf " + EVIL, "inputSchema": schema},
                {"name": "x" + EVIL, "inputSchema": schema},
            ]
        },
        "prompts/list": {"prompts": [{"name": "p" + EVIL, "description": EVIL}]},
        "tools/call": {"content": [{"type": "text", "text": EVIL}], "isError": True},
    }.get(message["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def strangers_tap(world: World) -> None:
    """Write hostile text wherever a tap has text."""
    world.home.capability("evil", [sys.executable, "-c", SERVER % EVIL, world.home.tag])
    dead = f"import sys; sys.exit({EVIL!r})"
    world.home.capability("dead", [sys.executable, "-c", dead, world.home.tag])
    tap = world.home.folder / "tap"
    with (tap / "capabilities/evil/config.toml").open("a") as file:
        file.write(f"description = {json.dumps(EVIL)}\n")
    odd = tap / "capabilities" / "\x1b]52;c;eA==\x07odd\u202e"
    odd.mkdir()
    (odd / "config.toml").write_text(f"x = {EVIL}\n")
    skill = tap / "skills/good"
    skill.mkdir(parents=True)
    said = json.dumps(f"read a pdf {EVIL}")
    (skill / "SKILL.md").write_text(f"---\nname: good\ndescription: {said}\n---\n{EVIL}\n")


def strangers_clone(folder: Path) -> None:
    """Write hostile text wherever a clone has text."""
    folder.mkdir()
    server = {"command": "sh", "args": ["-c", EVIL], "env": {"A": EVIL}}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {f"n{EVIL}": server}}))
    (folder / ".capd.toml").write_text(f"[policy]\ndeny = [{json.dumps(EVIL)}]\n[odd]\n")
    own = folder / ".capd/capabilities/theirs"
    own.mkdir(parents=True)
    (own / "config.toml").write_text(f'triggers = ["a b c"]\ndescription = {json.dumps(EVIL)}\n')
    (own / "default.toml").write_text(
        f'[[mcp.servers]]\nname = "theirs"\ncommand = "sh"\nargs = ["-c", {json.dumps(EVIL)}]\n'
    )


def told(world: World, folder: Path, *words: str) -> str:
    """Return what the `capd` command says in a folder."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "capd_client.entry", *words],
        env=world.home.env,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_OF_A_COMMAND,
        check=False,
    )
    return done.stdout + done.stderr


def test_no_command_shows_what_commands_a_terminal(world: World) -> None:
    clone = world.home.folder / "cl\x1b]52;c;eA==\x07one"
    strangers_tap(world)
    strangers_clone(clone)
    world.start()
    session = world.session("one", "evil", folder=clone, client=f"client{EVIL}")
    session.call("evil__echo")
    world.enable("one", "dead")
    wrong = {}

    for words in (
        *("status", "status --tokens", "servers", "sessions", "tools --session one"),
        *("tools --flags", "search read a pdf", "why -n 5", "list", "tap list", "doctor", "trust"),
        *("trust --list", "trust definitions evil", "import --dry-run", "tool show evil__echo"),
        *(f"check {world.home.folder / 'tap'}", "call evil__echo --session one"),
        f"enable {EVIL} --session one",
    ):
        if found := set(COMMANDS.findall(told(world, clone, *words.split(" ")))):
            wrong[words] = found

    assert wrong == {}


def test_no_command_in_a_clone_waits_for_what_is_no_file(world: World) -> None:
    clone = world.home.folder / "clone"
    for name in (
        *(".mcp.json", ".capd.toml", ".vscode/mcp.json", ".cursor/mcp.json", "opencode.json"),
        *(
            ".gemini/settings.json",
            ".codex/config.toml",
            ".zed/settings.json",
            ".claude/settings.json",
        ),
        *(
            ".capd/capabilities/x/config.toml",
            ".capd/capabilities/x/default.toml",
            ".capd/memories/a.md",
        ),
        *("CLAUDE.md", "AGENTS.md", ".env", ".npmrc", ".claude/skills/a/SKILL.md"),
    ):
        place = clone / name
        place.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(place)
    world.start()
    world.session("one", folder=clone)

    for command in ("trust", "import --dry-run", "doctor", "check .", "turn hello there"):
        # Whoever waits for a pipe exceeds the time that a command has.
        told(world, clone, *command.split())
