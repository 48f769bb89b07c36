"""200 scripts while the daemon, a script process or the server is killed at random points.

Each call is made at most once, each outcome is true, each script ends with exactly one answer, and
no process is left.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

from capd.adapters.platform import descendants
from capd_client.mcp_host import McpHost
from whole_daemon import Home, home_of_its_own, pids_with, wait_for

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

Victim = Literal["daemon", "worker", "server"]
VICTIMS: tuple[Victim, ...] = ("daemon", "worker", "server")
SERVER = Path(__file__).with_name("journal_server.py")
SEED = 18
ROUNDS, SCRIPTS = 25, 8
CODE = """
import asyncio

async def mark(n):
    nonce = f"{inputs['script']}-{n}"
    try:
        await journal.mark(nonce=nonce, wait=inputs["wait"])
        return [nonce, "result"]
    except NotSent:
        return [nonce, "not_sent"]
    except OutcomeUnknown:
        return [nonce, "outcome_unknown"]

first = await asyncio.gather(mark(0), mark(1), mark(2))
first + [await mark(3), await mark(4)]
"""


@pytest.fixture
def home() -> Iterator[Home]:
    with home_of_its_own() as made:
        yield made


def kill(home: Home, victim: Victim, daemon: "subprocess.Popen[bytes]") -> None:
    """Kill it where there is one; a daemon is followed by another."""
    if victim == "daemon":
        daemon.kill()
        daemon.wait()
        home.start()
        return
    tag = home.tag if victim == "server" else "capd.adapters.scripts.process"
    for pid in sorted(set(pids_with(tag)) & set(descendants(daemon.pid)))[-1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def outcomes(results: list[dict[str, Any]]) -> dict[str, str]:
    """Return what became of each call, as its script says it."""
    said: dict[str, str] = {}
    for result in results:
        assert not result.get("isError"), result
        said |= dict(json.loads(result["content"][0]["text"]))
    return said


@pytest.mark.timeout(1800)
def test_every_call_is_made_at_most_once_whoever_is_killed(home: Home) -> None:
    chosen = random.Random(SEED)
    file = home.folder / "journal"
    file.touch()
    home.capability("journal", [sys.executable, "-I", str(SERVER), str(file), home.tag, "j"])
    home.start()
    said: dict[str, str] = {}
    editors = [home.shim(f"s{n}") for n in range(2)]
    try:
        for each in editors:
            each.call("capability", {"action": "enable", "name": "journal"})
        for round_ in range(ROUNDS):
            victim = chosen.choice(VICTIMS)
            said |= play(home, editors, round_, victim, chosen.uniform(0.0, 0.6))
            left = list((home.folder / "state" / "scripts").glob("*"))
            assert left == [], (round_, victim)
    finally:
        for each in editors:
            each.leave()

    marks = Counter(file.read_text().split())
    assert len(said) == ROUNDS * SCRIPTS * 5
    assert max(marks.values()) == 1
    assert {nonce for nonce, how in said.items() if how == "result"} <= set(marks)
    assert not {nonce for nonce, how in said.items() if how == "not_sent"} & set(marks)
    assert set(marks) <= set(said)
    wait_for(lambda: not pids_with(str(home.folder)))


def play(
    home: Home, editors: list[McpHost], round_: int, victim: Victim, delay: float
) -> dict[str, str]:
    """Run some scripts, kill one process meanwhile, and return what became of their calls."""
    with ThreadPoolExecutor(len(editors)) as pool:

        def run(editor: McpHost, numbers: range) -> list[dict[str, Any]]:
            answers = []
            for n in numbers:
                inputs = {"script": f"{round_}-{n}", "wait": 20}
                answers.append(editor.call("script_run", {"code": CODE, "inputs": inputs}, 120))
            return answers

        half = SCRIPTS // 2
        begun = [
            pool.submit(run, editor, range(at * half, (at + 1) * half))
            for at, editor in enumerate(editors)
        ]
        # A random point: nothing is asserted about where it falls.
        time.sleep(delay)
        kill(home, victim, home.processes[-1])
        return outcomes([answer for each in begun for answer in each.result()])
