"""opencode's plugin under Node: what it sends to capd, and that it never blocks."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import CLIENTS, SILENCE, FakeDaemon

PLUGIN = CLIENTS / "capd_client" / "opencode_plugin" / "capd.js"

HOST = """\
import { CapdPlugin } from "./capd.mjs"
const started = []
const client = {
  session: { get: async () => ({ data: { parentID: PARENT } }) },
  mcp: { status: async () => started.push("mcp") },
}
const hooks = await CapdPlugin({ client, directory: "/src" })
const parts = [
  { id: "prt_1", sessionID: "s", messageID: "m", type: "text", text: "what changed?" },
  { type: "text", text: "added by a program", synthetic: true },
]
// As opencode, which does not end for want of something to wait for.
setInterval(() => {}, 1000)
process.stdout.write(JSON.stringify({ pid: process.pid }) + "\\n")
await new Promise((done) => process.stdin.once("data", done))
const begun = performance.now()
await hooks["chat.message"]({ sessionID: "s" }, { message: {}, parts })
process.stdout.write(JSON.stringify({ ms: performance.now() - begun, started, parts }) + "\\n")
process.exit(0)
"""


class Opencode:
    """As much of opencode as the plugin sees."""

    def __init__(
        self, folder: Path, home: Path, *, parent: str = "undefined", budget: str = ""
    ) -> None:
        node = shutil.which("node")
        if node is None:
            pytest.skip("node is not installed")
        (folder / "capd.mjs").write_text(PLUGIN.read_text())
        host = folder / "host.mjs"
        host.write_text(HOST.replace("PARENT", parent))
        self._process = subprocess.Popen(
            [node, str(host)],
            env={
                "PATH": os.environ.get("PATH", ""),
                "CAPD_HOME": str(home),
                "CAPD_HOOK_BUDGET": budget,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.pid = json.loads(self._process.stdout.readline())["pid"]

    def hear_message(self) -> dict[str, Any]:
        """Send a user's message to the plugin; return the result."""
        printed, _ = self._process.communicate("go\n", timeout=20)
        outcome: dict[str, Any] = json.loads(printed)
        return outcome


@pytest.fixture
def opencode(tmp_path: Path, home: Path) -> Opencode:
    return Opencode(tmp_path, home)


def sessions(pid: int) -> dict[str, Any]:
    others = [
        {"key": "zed-1", "pid": pid + 1, "project": "/src"},
        {"key": "oc-2", "pid": pid, "project": "/other"},
    ]
    return {"schema": 1, "sessions": [*others, {"key": "oc-1", "pid": pid, "project": "/src"}]}


def test_the_words_of_the_user_go_to_the_session_of_this_process_and_project(
    opencode: Opencode, start_daemon: Callable[..., FakeDaemon]
) -> None:
    turn = {"schema": 1, "outcome": "activate", "changed": {"added": ["git__git_log"]}}
    daemon = start_daemon({"sessions": sessions(opencode.pid), "turn": turn})

    outcome = opencode.hear_message()

    assert outcome["started"] == ["mcp"]
    listed, turn_taken = daemon.requests()
    patience = turn_taken["params"].pop("patience")
    assert listed == {"method": "sessions", "params": {}}
    params = {"text": "what changed?", "session": "oc-1", "mute": False, "longest": 5}
    assert turn_taken == {"method": "turn", "params": params}
    assert 0 < patience <= 2
    assert len(outcome["parts"]) == 2


@pytest.mark.parametrize(
    ("budget", "most", "longest"),
    [("4.5", 4.5, 0), ("0.5", 0.5, 0), ("900", 5, 0), ("-1", 2, 5), ("soon", 2, 5)],
)
def test_a_turn_may_take_what_the_user_has_set(
    tmp_path: Path,
    home: Path,
    start_daemon: Callable[..., FakeDaemon],
    *,
    budget: str,
    most: float,
    longest: float,
) -> None:
    opencode = Opencode(tmp_path, home, budget=budget)
    turn = {"schema": 1, "outcome": "abstain", "changed": {"added": []}}
    daemon = start_daemon({"sessions": sessions(opencode.pid), "turn": turn})

    opencode.hear_message()

    params = daemon.requests()[-1]["params"]
    # What a connection takes is gone of it, and what opencode takes to list anew.
    assert 0 < params["patience"] < most
    assert params["longest"] == longest


def test_what_capd_answers_stands_behind_the_users_text(
    opencode: Opencode, start_daemon: Callable[..., FakeDaemon]
) -> None:
    turn = {"schema": 1, "outcome": "activate", "changed": {}, "context": "git is on"}
    start_daemon({"sessions": sessions(opencode.pid), "turn": turn})

    outcome = opencode.hear_message()

    added = {"id": "prt_1capd", "sessionID": "s", "messageID": "m"}
    assert outcome["parts"][2:] == [
        {**added, "type": "text", "text": "git is on", "synthetic": True}
    ]


def test_two_sessions_that_might_be_meant_are_none(
    opencode: Opencode, start_daemon: Callable[..., FakeDaemon]
) -> None:
    both = [{"key": key, "pid": opencode.pid, "project": "/src"} for key in ("oc-1", "oc-2")]
    daemon = start_daemon({"sessions": {"schema": 1, "sessions": both}})

    opencode.hear_message()

    assert daemon.requests() == [{"method": "sessions", "params": {}}]


def test_what_a_model_says_to_its_helper_is_not_handed_over(
    tmp_path: Path, home: Path, start_daemon: Callable[..., FakeDaemon]
) -> None:
    opencode = Opencode(tmp_path, home, parent='"ses_1"')
    daemon = start_daemon({"sessions": sessions(opencode.pid)})

    opencode.hear_message()

    assert daemon.journal == []


@pytest.mark.parametrize("silent", ["sessions", "turn"])
def test_a_daemon_that_does_not_answer_is_not_waited_for(
    opencode: Opencode, start_daemon: Callable[..., FakeDaemon], silent: str
) -> None:
    start_daemon({"sessions": sessions(opencode.pid), "turn": {}, silent: SILENCE})

    outcome = opencode.hear_message()

    # Its own timer, so not before; how long after is the machine's affair.
    assert outcome["ms"] > 290


def test_without_a_daemon_nothing_happens(opencode: Opencode) -> None:
    outcome = opencode.hear_message()

    assert outcome["started"] == ["mcp"]
