"""Scripts through a real daemon, shim and server, also when one of them is killed."""

import json
import os
import signal
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from capd.adapters.platform import descendants
from whole_daemon import Home, pids_with, wait_for

JOURNAL_SERVER = Path(__file__).parents[1] / "reliability" / "journal_server.py"
MARKS = """
said = []
for n in range(8):
    try:
        said.append(await journal.mark(nonce=f"m{n}", wait=inputs["wait"]))
    except OutcomeUnknown:
        said.append("unknown")
said
"""


def journal(home: Home) -> Path:
    """Define the server that writes down each call; return what it writes."""
    file = home.folder / "journal"
    argv = [sys.executable, "-I", str(JOURNAL_SERVER), str(file), home.tag, "journal"]
    home.capability("journal", argv)
    file.touch()
    return file


def marked(file: Path) -> list[str]:
    return file.read_text().split()


def texts(result: dict[str, Any]) -> list[str]:
    return [each["text"] for each in result["content"]]


def workers(daemon: int) -> list[int]:
    """Return the script processes of one daemon: others may run beside it."""
    return sorted(set(pids_with("capd.adapters.scripts.process")) & set(descendants(daemon)))


def test_a_script_that_waits_at_a_call_goes_on_in_the_next_daemon(home: Home) -> None:
    file = journal(home)
    daemon = home.start()
    with home.shim("s") as editor, ThreadPoolExecutor(1) as pool:
        editor.call("capability", {"action": "enable", "name": "journal"})
        arguments = {"code": MARKS, "inputs": {"wait": 150}}
        answer = pool.submit(editor.call, "script_run", arguments, 120)
        wait_for(lambda: len(marked(file)) >= 3)

        os.kill(daemon.pid, signal.SIGKILL)
        daemon.wait()
        home.start()
        result = answer.result()

    said = json.loads(texts(result)[0])
    assert max(Counter(marked(file)).values()) == 1
    # The one that was under way is unknown, and no other.
    assert [each for each in said if each == "unknown"] in ([], ["unknown"])
    assert [mark for mark, each in zip(marked(file), said, strict=True) if each != "unknown"] == [
        each for each in said if each != "unknown"
    ]
    assert marked(file) == [f"m{n}" for n in range(8)]
    assert list((home.folder / "state" / "scripts").iterdir()) == []


def test_a_script_whose_process_is_killed_goes_on_in_another(home: Home) -> None:
    file = journal(home)
    daemon = home.start()
    with home.shim("s") as editor, ThreadPoolExecutor(1) as pool:
        editor.call("capability", {"action": "enable", "name": "journal"})
        arguments = {"code": MARKS, "inputs": {"wait": 100}}
        answer = pool.submit(editor.call, "script_run", arguments, 120)
        wait_for(lambda: len(marked(file)) >= 3)

        for pid in workers(daemon.pid):
            os.kill(pid, signal.SIGKILL)
        result = answer.result()

    assert json.loads(texts(result)[0]) == [f"m{n}" for n in range(8)]
    assert marked(file) == [f"m{n}" for n in range(8)]


def test_a_script_by_hand_prints_its_value_alone(home: Home) -> None:
    journal(home)
    home.start()
    with home.shim("s") as editor:
        editor.call("capability", {"action": "enable", "name": "journal"})

        done = home.capd(
            *("run", "-", "--input", "n=3", "--session", "s"),
            said="await journal.mark(nonce=str(inputs['n']), wait=0)",
        )

    assert (done.stdout, done.returncode) == ('"3"\n', 0), done.stderr
    assert "- journal.mark: result, " in done.stderr
