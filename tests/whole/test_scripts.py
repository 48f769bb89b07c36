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
from whole_daemon import PLAIN_SERVER, Home, pids_with, wait_for

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
    """Define a server that writes each call to a file; return the file."""
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
    """Return the script processes of one daemon; others may be running."""
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


def test_a_script_is_told_which_secret_its_call_lacks_and_no_server_is_started(home: Home) -> None:
    home.plain("vault")
    (home.folder / "tap" / "capabilities" / "vault" / "default.toml").write_text(
        '[[mcp.servers]]\nname = "vault"\n'
        f'command = "{sys.executable}"\nargs = ["-I", "{PLAIN_SERVER}", "{home.tag}"]\n'
        'env = { TOKEN = "{{ENV:VAULT_TOKEN}}" }\n'
    )
    (home.folder / "config" / "config.toml").write_text("[scripts]\nlisted = true\n")
    home.env["VAULT_TOKEN"] = "known once"
    home.start()
    with home.shim("s") as editor:
        editor.call("capability", {"action": "enable", "name": "vault"})
    home.close()
    del home.env["VAULT_TOKEN"]
    home.start()

    with home.shim("t") as editor:
        code = (
            'try:\n    await vault.echo(text="x")\n'
            "except Refused as error:\n    said = str(error)\nsaid"
        )
        caught = editor.call("script_run", {"code": code}, 120)
        bare = editor.call("script_run", {"code": 'await vault.echo(text="x")'}, 120)

    assert "VAULT_TOKEN" in texts(caught)[0]
    assert "capd secret set VAULT_TOKEN" in texts(bare)[-1]
    assert bare["isError"]
    assert home.tag not in "".join(map(str, pids_with(home.tag)))


def test_a_memory_that_refuses_refuses_inside_a_script(home: Home) -> None:
    file = journal(home)
    memories = home.folder / "tap" / "memories"
    memories.mkdir()
    (memories / "mistake.toml").write_text(
        'kind = "corrective"\ncontent = "Never mark it as zero: begin with one."\n'
        'tool = "journal:mark"\nrefuses = true\n'
        'arguments.required = ["nonce"]\narguments.properties.nonce.const = "zero"\n'
    )
    home.start()
    code = (
        "said = []\nfor nonce in ('zero', 'one'):\n    try:\n"
        "        said.append(await journal.mark(nonce=nonce, wait=0))\n"
        "    except Refused as error:\n        said.append(str(error))\nsaid"
    )
    with home.shim("s") as editor:
        editor.call("capability", {"action": "enable", "name": "journal"})

        refused, marked_as = json.loads(texts(editor.call("script_run", {"code": code}, 120))[0])

    assert refused.startswith("Refused: ")
    assert "Never mark it as zero: begin with one." in refused
    assert (marked_as, marked(file)) == ("one", ["one"])
