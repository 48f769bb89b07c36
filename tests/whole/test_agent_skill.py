"""Every command that `capd skill` teaches runs as written."""

import json
import shlex
import subprocess
import sys

import pytest

from capd.core.taps.frontmatter import frontmatter
from capd_client.commands.skill import SKILL
from whole_daemon import Home, wait_for

NOTES = """
import json, sys
TOOL = {
    "name": "find",
    "description": "Find a note about something.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    params = request.get("params", {})
    said = "found " + str(params.get("arguments", {}).get("text"))
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "notes", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": said}]},
    }
    result = results.get(request["method"], {})
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def taught() -> list[str]:
    """Return the commands of the skill, each with the lines that it reads."""
    blocks: list[str] = []
    was_code = False
    for line in SKILL.splitlines():
        if is_code := line.startswith("    "):
            blocks += [] if was_code else [""]
            blocks[-1] += line[4:] + "\n"
        was_code = is_code
    return blocks


def run(home: Home, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does."""
    capd = shlex.join([sys.executable, "-P", "-m", "capd_client.entry"])
    return subprocess.run(
        ["sh", "-c", f'capd() {{ {capd} "$@"; }}\n{command}'],
        env=home.env,
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_command_that_the_skill_teaches_works(home: Home) -> None:
    home.capability("notes", [sys.executable, "-I", "-c", NOTES, home.tag])
    home.start()
    # A server that ran once is found by what it listed.
    wait_for(lambda: home.capd("enable", "notes").returncode == 0)
    wait_for(lambda: "notes__find" in home.capd("search", "find a note").stdout)
    search, call, script, why = taught()

    found, called, counted, explained = (run(home, each) for each in (search, call, script, why))

    results = (found, called, counted, explained)
    assert [each.stderr for each in results if each.returncode] == []
    (hit,) = json.loads(found.stdout)["hits"]
    assert hit["name"] == "notes__find"
    assert list(hit["definition"]["inputSchema"]["properties"]) == ["text"]
    assert called.stdout == "found milk\n"
    assert counted.stdout == "2\n"


@pytest.mark.parametrize("word", ["capd search", "capd call", "capd run", "capd why"])
def test_the_skill_is_printed_with_every_command_that_matters(home: Home, word: str) -> None:
    printed = home.capd("skill")

    assert (printed.stdout, printed.returncode) == (SKILL, 0)
    assert word in printed.stdout


def test_the_skill_has_the_head_that_agents_read() -> None:
    fields = frontmatter(SKILL).fields

    assert sorted(fields) == ["description", "name"]


def test_the_skill_takes_no_words(home: Home) -> None:
    done = home.capd("skill", "claude")

    assert done.returncode == 2
    assert "unexpected extra argument (claude)" in done.stderr
