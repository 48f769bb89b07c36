"""Without a daemon, the shim starts one or reports why it cannot."""

import contextlib
import fcntl
import json
import os
import signal
import stat
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mcp_types
import pytest

from capd_client.shim.handshakes import VERSION
from capd_client.shim.starting import Starter
from python_with import python_with
from whole_daemon import wait_for

from .conftest import SHIM, FakeDaemon, Host

DAEMON = """
import json, os, signal, socket, sys, threading

home = os.environ["CAPD_HOME"]
with open(home + "/spawned", "a") as file:
    file.write(str(os.getpid()) + "\\n")
print("starting", file=sys.stderr, flush=True)
mode = open(home + "/mode").read()
if mode == "fail":
    print("config.toml:3: no such key\\x1b[31m", file=sys.stderr)
    sys.exit(3)
while open(home + "/mode").read() == "slow":
    pass
if mode == "make way":
    first = os.getpid()
    if os.fork():
        os._exit(1)
    os.setsid()
    try:
        while True:
            os.kill(first, 0)
    except ProcessLookupError:
        pass  # the shim has seen the first one end
    with open(home + "/spawned", "a") as file:
        file.write(str(os.getpid()) + "\\n")
signal.alarm(60)
facts = {
    "arguments": sys.argv[1:],
    "cwd": os.getcwd(),
    "is_leader": os.getsid(0) == os.getpid(),
    "env": dict(os.environ),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd")),
    "streams": [os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)],
}
with open(home + "/facts.json", "w") as file:
    json.dump(facts, file)
listener = socket.socket(socket.AF_UNIX)
path = os.environ.get("CAPD_SOCKET") or home + "/run/capd.sock"
if os.path.exists(path):
    os.unlink(path)
listener.bind(path)
listener.listen(128)


def serve(sock):
    lines = sock.makefile("rb")
    next(lines)
    say = lambda message: sock.sendall(json.dumps(message, separators=(",", ":")).encode() + b"\\n")
    say({"capd": "welcome", "protocol": 1, "daemon": {"version": "0", "pid": os.getpid()},
         "session": "s", "resume": "t"})
    for line in lines:
        request = json.loads(line)
        if "id" in request:
            say({"jsonrpc": "2.0", "id": request["id"], "result": {"daemon": os.getpid()}})


while True:
    sock, _ = listener.accept()
    threading.Thread(target=serve, args=(sock,), daemon=True).start()
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "zed", "version": "1.25"},
    },
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
Start = Callable[..., Host]


class Capd:
    """A `capd` package that the shim starts in place of the real one."""

    def __init__(self, home: Path, site: Path) -> None:
        self.home = home
        self.socket = home / "run" / "capd.sock"
        self.site = site
        (site / "capd").mkdir(parents=True)
        # Without it, this would be a namespace package, and the real one would be run.
        (site / "capd" / "__init__.py").write_text("")
        (site / "capd" / "__main__.py").write_text(DAEMON)
        self.become("serve")

    def become(self, mode: str) -> None:
        (self.home / "mode").write_text(mode)

    @property
    def env(self) -> dict[str, str]:
        return {"CAPD_NO_START": ""}

    @property
    def shim(self) -> list[str]:
        python = python_with(self.site, self.site.with_name("python"))
        return [python, "-I", "-S", str(SHIM)]

    def spawned(self) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return [int(line) for line in (self.home / "spawned").read_text().split()]
        return []

    def facts(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.home / "facts.json").read_text())
        return facts

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def capd(home: Path, tmp_path: Path) -> Iterator[Capd]:
    package = Capd(home, tmp_path / "site")
    yield package
    for pid in package.spawned():
        package.kill(pid)


def test_without_a_daemon_one_is_started(capd: Capd, start_host: Start) -> None:
    host = start_host(command=capd.shim, env=capd.env)

    host.write(INITIALIZE)

    (pid,) = [host.read()["result"]["daemon"]]
    assert capd.spawned() == [pid]


def test_the_daemon_is_nobodys_child_and_keeps_nothing_of_the_editor(
    capd: Capd, start_host: Start, tmp_path: Path
) -> None:
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    (tmp_path / "capd").mkdir(exist_ok=True)
    for name in ("__init__", "__main__"):
        (tmp_path / "capd" / f"{name}.py").write_text("raise SystemExit('not me')")
    editor = {"CAPD_SESSION": "s", "CAPD_PARENT_SESSION": "p", "LISTEN_FDS": "1"}
    projects = {"VIRTUAL_ENV": "/src/.venv", "LD_LIBRARY_PATH": "/src/lib"}
    host = start_host(
        command=capd.shim, env={**capd.env, **editor, **projects}, pass_fds=(writable,)
    )
    os.close(readable)
    os.close(writable)

    host.write(INITIALIZE)
    host.read()

    facts = capd.facts()
    log = capd.home / "state" / "capd.log"
    assert facts["arguments"] == ["daemon", "run"]
    assert facts["cwd"] == "/"
    assert facts["is_leader"]
    assert facts["streams"] == ["/dev/null", "/dev/null", str(log)]
    assert [fd for fd in facts["fds"] if fd > 2] == facts["fds"][3:4]
    assert facts["env"]["CAPD_HOME"] == str(capd.home)
    assert facts["env"]["HOME"]
    assert not facts["env"].keys() & {*editor, *projects}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert stat.S_IMODE(capd.socket.parent.stat().st_mode) == 0o700
    assert log.read_text() == "starting\n"


def below(pid: int) -> set[int]:
    """Return all descendants of the process `pid`."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = int(fields[1])
    found = {pid}
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def test_a_named_pipe_in_place_of_the_log_is_not_written_to(capd: Capd, start_host: Start) -> None:
    log = capd.home / "state" / "capd.log"
    log.parent.mkdir(parents=True)
    os.mkfifo(log)
    host = start_host(command=capd.shim, env=capd.env)

    host.write(INITIALIZE)
    host.read()

    assert capd.facts()["streams"] == ["/dev/null", "/dev/null", "/dev/null"]


def test_an_editor_that_kills_all_that_it_started_leaves_the_daemon(
    capd: Capd, start_host: Start
) -> None:
    first = start_host(command=capd.shim, env=capd.env)
    first.write(INITIALIZE)
    reply = first.read()

    for pid in below(first.process.pid):
        os.kill(pid, signal.SIGKILL)
    second = start_host(command=capd.shim, env=capd.env)
    second.write(INITIALIZE)

    assert second.read() == reply
    assert len(capd.spawned()) == 1


def test_an_editor_that_is_killed_while_the_daemon_starts_leaves_it(
    capd: Capd, start_host: Start
) -> None:
    capd.become("slow")
    first = start_host(command=capd.shim, env=capd.env)
    wait_for(capd.spawned)

    for pid in below(first.process.pid):
        os.kill(pid, signal.SIGKILL)
    capd.become("serve")
    wait_for(capd.socket.exists)
    second = start_host(command=capd.shim, env=capd.env)
    second.write(INITIALIZE)

    assert second.read()["result"]["daemon"] == capd.spawned()[0]
    assert len(capd.spawned()) == 1


def test_the_daemon_outlives_the_editor(capd: Capd, start_host: Start) -> None:
    first = start_host(command=capd.shim, env=capd.env)
    first.write(INITIALIZE)
    reply = first.read()
    first.hang_up()

    second = start_host(command=capd.shim, env=capd.env)
    second.write(INITIALIZE)

    assert second.read() == reply
    assert len(capd.spawned()) == 1


def test_a_socket_that_was_named_is_the_daemons_too(
    capd: Capd, start_host: Start, tmp_path: Path
) -> None:
    host = start_host("named.sock", command=capd.shim, env={**capd.env})

    host.write(INITIALIZE)
    host.read()

    assert capd.facts()["env"]["CAPD_SOCKET"] == str(tmp_path / "named.sock")


def test_twenty_shims_at_once_start_one_daemon(capd: Capd, start_host: Start) -> None:
    hosts = [start_host(command=capd.shim, env=capd.env) for _ in range(20)]

    for host in hosts:
        host.write(INITIALIZE)
    replies = [host.read()["result"]["daemon"] for host in hosts]

    assert len(capd.spawned()) == 1
    assert set(replies) == set(capd.spawned())


def test_a_daemon_that_is_lost_is_started_again(capd: Capd, start_host: Start) -> None:
    host = start_host(command=capd.shim, env={**capd.env, "CAPD_RESTART_GRACE": "0"})
    host.write(INITIALIZE)
    host.read()
    host.write(INITIALIZED)
    (first,) = capd.spawned()

    capd.kill(first)
    hint = host.read()
    host.write({"jsonrpc": "2.0", "id": 5, "method": "ping"})

    assert hint == LIST_CHANGED
    assert host.read() == {"jsonrpc": "2.0", "id": 5, "result": {"daemon": capd.spawned()[-1]}}
    assert len(capd.spawned()) == 2


def test_a_daemon_that_was_stopped_is_not_started_again(
    capd: Capd,
    daemon: FakeDaemon,
    start_host: Start,
    start_daemon: Callable[..., FakeDaemon],
) -> None:
    # Without a pause the shim looks for the daemon each time it wakes up.
    timing = {"CAPD_RESTART_GRACE": "0", "CAPD_IDLE_RETRY": "0"}
    host = start_host(command=capd.shim, env={**capd.env, **timing})
    link = daemon.accept()
    link.welcome()
    daemon.stop_listening()
    link.write({"capd": "closing", "reason": "capd stop", "reconnect": False})
    link.close()

    for key in range(50):
        host.write({"jsonrpc": "2.0", "id": key, "method": "ping"})
        assert host.read()["error"]["code"] == 4001
    start_daemon().accept().welcome()

    assert capd.spawned() == []
    assert not (capd.socket.parent / "start.lock").exists()


def test_a_daemon_that_makes_way_for_another_is_no_failure(capd: Capd, start_host: Start) -> None:
    capd.become("make way")
    host = start_host(command=capd.shim, env=capd.env)

    host.write(INITIALIZE)

    assert host.read()["result"] == {"daemon": capd.spawned()[-1]}


def ask(host: Host, method: str, **params: Any) -> dict[str, Any]:
    host.write({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    return host.read()


REPORT = """\
capd has no tools to offer: the daemon cannot start: it ended with exit code 3.
Its last words:
  starting
  config.toml:3: no such key\\x1b[31m
Ask the user to run `capd daemon run` in a terminal, which says what is wrong.
capd keeps trying, and its tools appear as soon as it runs."""


def test_a_daemon_that_cannot_start_leaves_a_server_that_says_why(
    capd: Capd, start_host: Start
) -> None:
    capd.become("fail")
    host = start_host(command=capd.shim, env=capd.env)

    host.write(INITIALIZE)
    welcome = host.read()["result"]
    host.write(INITIALIZED)
    tools = ask(host, "tools/list")["result"]
    status = ask(host, "tools/call", name="capd_status", arguments={})["result"]
    pong = ask(host, "ping")
    other = ask(host, "tools/call", name="git__log", arguments={})
    probe = ask(host, "server/discover")

    assert welcome == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "capd", "version": version("capd")},
        "instructions": REPORT,
    }
    schema = {"type": "object", "properties": {}}
    assert tools == {
        "tools": [{"name": "capd_status", "description": REPORT, "inputSchema": schema}]
    }
    assert status == {"content": [{"type": "text", "text": REPORT}], "isError": False}
    assert pong == {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert (other["error"]["code"], other["error"]["message"]) == (4001, REPORT)
    assert probe["error"]["code"] == -32601
    mcp_types.InitializeResult.model_validate(welcome)
    mcp_types.ListToolsResult.model_validate(tools)
    mcp_types.CallToolResult.model_validate(status)
    assert host.hang_up() == 0
    assert host.stderr().splitlines()[0] == (
        "capd: the daemon cannot start: it ended with exit code 3"
    )


def test_shims_that_waited_in_vain_do_not_all_try_the_same(capd: Capd, start_host: Start) -> None:
    capd.become("fail")
    hosts = [start_host(command=capd.shim, env=capd.env) for _ in range(6)]

    for host in hosts:
        host.write(INITIALIZE)
    told = {host.read()["result"]["instructions"] for host in hosts}

    assert told == {REPORT}
    assert len(capd.spawned()) == 1


def test_a_folder_that_cannot_be_made_is_told(
    capd: Capd, start_host: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    host = start_host(str(tmp_path / "file" / "capd.sock"), command=capd.shim, env=capd.env)

    host.write(INITIALIZE)

    why = host.read()["result"]["instructions"].splitlines()[0]
    assert why == (
        "capd has no tools to offer: the daemon cannot start: "
        f"{tmp_path}/file: it is not a folder of yours."
    )
    assert capd.spawned() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(capd: Capd, start_host: Start) -> None:
    capd.socket.parent.mkdir()
    os.chown(capd.socket.parent, 65534, 65534)
    host = start_host(command=capd.shim, env=capd.env)

    host.write(INITIALIZE)

    why = host.read()["result"]["instructions"].splitlines()[0]
    assert why.endswith(f"{capd.socket.parent}: it is not a folder of yours.")
    assert capd.spawned() == []


def test_the_stand_in_gives_way_to_the_daemon(
    capd: Capd, start_host: Start, start_daemon: Callable[..., FakeDaemon]
) -> None:
    capd.become("fail")
    host = start_host(command=capd.shim, env={**capd.env, "CAPD_IDLE_RETRY": "0.02"})
    host.write(INITIALIZE)
    host.read()
    host.write(INITIALIZED)
    ask(host, "ping")

    link = start_daemon().accept()
    link.welcome()
    replay = link.read()
    link.write({"jsonrpc": "2.0", "id": replay["id"], "result": {}})
    after = link.read()
    hint = host.read()
    host.write({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

    assert replay == {**INITIALIZE, "id": replay["id"]}
    assert replay["id"] != 0
    assert after == INITIALIZED
    assert hint == LIST_CHANGED
    assert link.read() == {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


def open_files(pid: int) -> list[str]:
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return found


def test_who_does_not_get_the_lock_waits_until_its_holder_is_gone(
    capd: Capd, start_host: Start
) -> None:
    capd.socket.parent.mkdir(mode=0o700)
    with (capd.socket.parent / "start.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        host = start_host(command=capd.shim, env=capd.env)
        host.write(INITIALIZE)
        # It has the lock open: it has come to the question who starts the daemon.
        while not any("start.lock" in each for each in open_files(host.process.pid)):
            pass
        while_held = capd.spawned()

    reply = host.read()

    assert while_held == []
    assert reply["result"]["daemon"] == capd.spawned()[0]


def test_the_version_is_the_packages() -> None:
    assert version("capd") == VERSION


def test_the_shim_that_starts_the_daemon_looks_for_it_more_often_than_those_that_wait(
    tmp_path: Path,
) -> None:
    env = {"CAPD_HOME": str(tmp_path)}
    starting, waiting = (
        Starter(str(tmp_path / "run" / "capd.sock"), env, is_named=True) for _ in range(2)
    )

    starting.step()
    waiting.step()

    assert (starting.is_busy, waiting.is_busy) == (True, True)
    # It has the lock, and looks once more before it starts anything.
    assert starting.pause < waiting.pause
    starting.release()
