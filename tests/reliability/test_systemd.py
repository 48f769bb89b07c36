"""The daemon as a service, under a real `systemd --user`."""

import ctypes
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from capd.core.sessions.session_record import SessionRecord
from capd_client.control import Control
from capd_client.mcp_host import HostError
from whole_daemon import OWN_TOOLS, PLAIN_SERVER, Home, wait_for

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

    asked_at = time.monotonic()
    with Control(home.socket) as control:
        answered = control.call("status", {})

    answered_after = time.monotonic() - asked_at
    shown = systemd.run("systemctl", "--user", "status", "capd", "--no-pager").stdout
    # A figure for who runs this with -s.
    print(f"a connection was answered after {answered_after:.2f} s\n{shown}")
    assert stopped == "inactive"
    assert answered["daemon"]["pid"] == systemd.pid
    assert f'Status: "serving {home.socket}"' in shown
    assert "capd, the capability daemon" in shown


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


PTRACE_SEIZE, PTRACE_INTERRUPT, EVERY_CHILD = 0x4206, 0x4207, 0x40000000


def block_loop(pid: int) -> None:
    """Block the event loop's thread until it is killed; other threads continue."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        assert ptrace(request, pid, None, None) == 0, os.strerror(ctypes.get_errno())
    # Who traces hears of its end first; its parent does when that has been heard.
    threading.Thread(target=heard_to_its_end, args=(pid,)).start()


def heard_to_its_end(pid: int) -> None:
    while not has_ended(os.waitpid(pid, EVERY_CHILD)[1]):
        pass


def has_ended(status: int) -> bool:
    return os.WIFEXITED(status) or os.WIFSIGNALED(status)


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


@pytest.mark.parametrize("trouble", [kill, stop, block_loop])
def test_a_daemon_that_dies_or_hangs_comes_back_with_its_sessions(
    home: Home, systemd: UserSystemd, trouble: Callable[[int], None]
) -> None:
    home.plain("talk")
    # Another argument, or the two were one server.
    home.capability("other", [sys.executable, "-I", str(PLAIN_SERVER), home.tag, "other"])
    capd(systemd, "daemon", "install")
    drop_in = home.folder / ".config/systemd/user/capd.service.d/test.conf"
    drop_in.parent.mkdir()
    drop_in.write_text("[Service]\nWatchdogSec=3\nTimeoutAbortSec=3\n")
    systemd.run("systemctl", "--user", "daemon-reload")
    capd(systemd, "daemon", "restart")
    wanted = {"one": ["talk"], "two": ["talk", "other"], "three": ["other"], "four": []}
    editors = {key: home.shim(key) for key in wanted}
    for key, names in wanted.items():
        for name in names:
            home.ask("enable", session=key, name=name)
    before = {key: [tool["name"] for tool in each.tools()] for key, each in editors.items()}
    active = wait_for(lambda: found if (found := active_sets(home)) == written(home) else None)
    pid = systemd.pid

    trouble(pid)
    wait_for(lambda: systemd.show("capd.service", "NRestarts") == "1", 60)
    after = {key: [tool["name"] for tool in each.tools()] for key, each in editors.items()}

    assert after == before
    assert [len(names) for names in before.values()] == [len(OWN_TOOLS) + n for n in (2, 4, 2, 0)]
    wait_for(lambda: active_sets(home).keys() == wanted.keys() or None)
    assert active_sets(home) == active
    for key, names in wanted.items():
        for name in names:
            result = editors[key].call(f"{name}__echo", {"text": key})
            assert result["content"][0]["text"].endswith(f" {key}")
    assert systemd.pid != pid
    for each in editors.values():
        each.leave()


def active_sets(home: Home) -> dict[str, list[str]]:
    sessions = home.ask("sessions")["sessions"]
    return {each["key"]: sorted(entry["name"] for entry in each["active"]) for each in sessions}


def written(home: Home) -> dict[str, list[str]]:
    """Return the saved sessions; an empty session needs no file."""
    found = {key: list[str]() for key in active_sets(home)}
    for file in (home.folder / "state/sessions").glob("*.session"):
        record = msgspec.msgpack.decode(file.read_bytes(), type=SessionRecord)
        found[record.key] = sorted(each.spec.id.name for each in record.activations)
    return found


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
