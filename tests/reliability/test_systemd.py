"""The daemon as a service, under a real `systemd --user`."""

import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd_client.control import Control
from capd_client.mcp_host import HostError
from whole_daemon import OWN_TOOLS, Home, wait_for

from .user_systemd import UserSystemd, skip_unless_possible

pytestmark = pytest.mark.reliability

# It answers a tenth of a second after it has acted, so that calls are always under way.
COUNTING_SERVER = """
import json, sys, threading
def say(m, r):
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}) + "\\n", end="", flush=True)
effects = open(sys.argv[1], "a")
tool = {"name": "add", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "initialize":
        info = {"name": "counting", "version": "1"}
        r = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif m["method"] == "tools/list": r = {"tools": [tool]}
    elif m["method"] == "tools/call":
        effects.write(m["params"]["arguments"]["key"] + "\\n"); effects.flush()
        r = {"content": [{"type": "text", "text": m["params"]["arguments"]["key"]}]}
        threading.Timer(0.1, say, (m, r)).start()
        continue
    else: r = {}
    say(m, r)
"""
RESTARTS = 3
CALLERS = 6
PER_SECOND = 50


@pytest.fixture
def home() -> Iterator[Home]:
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    made = Home(folder)
    yield made
    made.close()


@pytest.fixture
def systemd(home: Home) -> Iterator[UserSystemd]:
    skip_unless_possible()
    made = UserSystemd(home.folder, home.env)
    try:
        yield made
    finally:
        made.close()


def capd(systemd: UserSystemd, *arguments: str) -> str:
    done = systemd.run(sys.executable, "-P", "-m", "capd_client.entry", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_connection_starts_the_daemon_and_its_status_can_be_read(
    home: Home, systemd: UserSystemd
) -> None:
    capd(systemd, "daemon", "install")
    systemd.run("systemctl", "--user", "stop", "capd.service")
    stopped = systemd.show("capd.service", "ActiveState")

    with Control(home.socket) as control:
        answered = control.call("status", {})

    assert stopped == "inactive"
    assert answered["daemon"]["pid"] == systemd.pid
    shown = systemd.run("systemctl", "--user", "status", "capd", "--no-pager").stdout
    assert f'Status: "serving {home.socket}"' in shown
    assert "capd, the capability daemon" in shown


@pytest.mark.parametrize("command", [("stop",), ("daemon", "stop")], ids=" ".join)
def test_what_was_stopped_stays_stopped_whoever_looks(
    home: Home, systemd: UserSystemd, command: tuple[str, ...]
) -> None:
    home.env |= {"CAPD_IDLE_RETRY": "0.05", "CAPD_RESTART_GRACE": "0"}
    home.plain("talk")
    capd(systemd, "daemon", "install")
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    pid = systemd.pid

    said = capd(systemd, *command)
    has_ended = not Path(f"/proc/{pid}").exists()
    with pytest.raises(HostError, match="capd is not running"):
        editor.call("talk__echo", {"text": "x"})

    assert said.startswith("capd is stopped; capd.socket does not listen either")
    assert has_ended
    shown = [systemd.show(unit, "ActiveState") for unit in ("capd.service", "capd.socket")]
    assert shown == ["inactive", "inactive"]
    capd(systemd, "daemon", "start")
    assert systemd.show("capd.service", "ActiveState") == "active"
    editor.leave()


@pytest.mark.parametrize("trouble", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "blocked"])
def test_a_daemon_that_dies_or_hangs_comes_back_with_its_sessions(
    home: Home, systemd: UserSystemd, trouble: signal.Signals
) -> None:
    home.plain("talk")
    capd(systemd, "daemon", "install")
    drop_in = home.folder / ".config/systemd/user/capd.service.d/test.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=3\n")
    systemd.run("systemctl", "--user", "daemon-reload")
    capd(systemd, "daemon", "restart")
    editor = home.shim("one")
    home.ask("enable", session="one", name="talk")
    before = [tool["name"] for tool in editor.tools()]
    # What a session has is written down within a tenth of a second of its change.
    wait_for(lambda: any(b"talk" in f.read_bytes() for f in home.folder.glob("state/sessions/*")))

    os.kill(systemd.pid, trouble)
    wait_for(lambda: systemd.show("capd.service", "NRestarts") == "1", 60)
    after = [tool["name"] for tool in editor.tools()]

    assert editor.call("talk__echo", {"text": "here"})["content"][0]["text"].endswith(" here")
    assert after == before == [*OWN_TOOLS, "talk__echo", "talk__shout"]
    editor.leave()


def test_restarts_under_load_refuse_lose_and_repeat_nothing(
    home: Home, systemd: UserSystemd
) -> None:
    effects = home.folder / "effects"
    program = home.folder / "counting.py"
    program.write_text(COUNTING_SERVER)
    home.capability("count", [sys.executable, "-I", str(program), str(effects), home.tag])
    capd(systemd, "daemon", "install")
    editors = [home.shim(f"editor-{number}") for number in range(CALLERS)]
    for number in range(CALLERS):
        home.ask("enable", session=f"editor-{number}", name="count")
    over = threading.Event()
    answers: Counter[str] = Counter()
    sent: list[str] = []

    def keep_calling(number: int) -> None:
        while not over.is_set():
            key = f"{number}-{len(sent)}"
            sent.append(key)
            result = editors[number].call("count__add", {"key": key}, timeout=60)
            right = not result.get("isError") and result["content"][0]["text"] == key
            answers["right" if right else json.dumps(result)] += 1
            time.sleep(max(0.0, CALLERS / PER_SECOND - 0.1))

    callers = [threading.Thread(target=keep_calling, args=(n,)) for n in range(CALLERS)]
    for caller in callers:
        caller.start()

    def have_come(number: int) -> None:
        wait_for(lambda: answers["right"] >= number)

    for round_ in range(RESTARTS):
        have_come(50 * (round_ + 1))
        capd(systemd, "daemon", "restart")
    have_come(50 * (RESTARTS + 2))
    over.set()
    for caller in callers:
        caller.join()

    ran = Counter(effects.read_text().split())
    assert answers == {"right": len(sent)}
    assert ran == dict.fromkeys(sent, 1)
    for editor in editors:
        editor.leave()


def test_uninstalling_leaves_no_unit_and_no_process(home: Home, systemd: UserSystemd) -> None:
    capd(systemd, "daemon", "install", "--hardened")
    hardened = systemd.show("capd.service", "NoNewPrivileges")

    capd(systemd, "daemon", "uninstall")

    assert hardened == "yes"
    assert not list((home.folder / ".config/systemd/user").rglob("capd*"))
    assert systemd.show("capd.service", "LoadState") == "not-found"


def test_a_daemon_that_ran_by_itself_makes_way_for_the_service(
    home: Home, systemd: UserSystemd
) -> None:
    by_itself = home.start()

    said = capd(systemd, "daemon", "install")

    assert "stopped the daemon that ran without systemd" in said
    assert by_itself.wait(30) == 0
    assert home.ask("status")["daemon"]["pid"] == systemd.pid
