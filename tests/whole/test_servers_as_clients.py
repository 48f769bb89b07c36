"""What a server's own processes may do to the daemon that started them (docs/design/trust.md)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whole_daemon import Home, wait_for

CALLER = """
import json, os, pathlib, socket, subprocess, sys
out, path, how = sys.argv[1:4]
ASK = '''
import json, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[2])
hello = {"capd": "hello", "protocol": 1, "role": sys.argv[3], "client": {"name": "server"}}
link.sendall(json.dumps(hello).encode() + b"\\\\n")
line = link.makefile().readline()
import pathlib
pathlib.Path(sys.argv[1]).write_text(line)
'''
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    os.execv(sys.executable, [sys.executable, "-I", "-c", ASK, out, path, how])
os.wait()
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "caller", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        }
        result = results.get(request["method"], {})
        answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
        print(json.dumps(answer), flush=True)
"""


def started(home: Home, role: str) -> Path:
    """Start a server, a double-forked process of which says hello; return where it writes."""
    out = home.folder / "answer"
    home.capability(
        "caller", [sys.executable, "-I", "-c", CALLER, str(out), home.socket, role, home.tag]
    )
    home.start()
    editor = home.shim("one")
    home.ask("enable", session="one", name="caller")
    wait_for(lambda: out.exists() and out.read_text())
    editor.leave()
    return out


@pytest.mark.parametrize("role", ["control", "mcp"])
def test_a_process_that_a_server_has_started_may_not_act_on_capd(home: Home, role: str) -> None:
    # At the default level it does not find the socket, where the machine can hide it.
    (home.folder / "config").mkdir(exist_ok=True)
    (home.folder / "config" / "config.toml").write_text('[sandbox]\nlevel = "off"\n')

    out = started(home, role)

    answer = json.loads(out.read_text())

    assert (answer["capd"], answer["code"]) == ("refused", "started_by_capd")
    assert "descendant_refused" in home.log()


def test_a_server_that_is_an_agent_may_where_the_user_says_so(home: Home) -> None:
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    (config / "config.toml").write_text('[servers]\nmay_connect = ["call*"]\n')

    out = started(home, "control")

    assert json.loads(out.read_text())["capd"] == "welcome"


@pytest.mark.skipif(sys.platform != "linux", reason="a process is looked at in /proc")
@pytest.mark.skipif(os.getuid() == 0, reason="root owns its processes' files either way")
def test_the_daemons_memory_is_not_for_other_processes_of_its_user(home: Home) -> None:
    process = home.start()

    owner = Path(f"/proc/{process.pid}/environ").stat().st_uid
    assert owner == 0


PASSED_ON = """
import json, os, pathlib, socket, sys
out, path = sys.argv[1:3]
ours, theirs = socket.socketpair()
if os.fork() == 0:
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    socket.send_fds(theirs, [b"x"], [link.fileno()])
    os._exit(0)
os.wait()
_, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
link = socket.socket(fileno=fd)
hello = {"capd": "hello", "protocol": 1, "role": "control", "client": {"name": "server"}}
link.sendall(json.dumps(hello).encode() + b"\\n")
pathlib.Path(out).write_text(link.makefile().readline())
"""


def test_a_connection_whose_process_is_gone_is_nobodys(home: Home) -> None:
    out = home.folder / "answer"
    home.start()

    subprocess.run([sys.executable, "-I", "-c", PASSED_ON, str(out), home.socket], check=True)

    answer = json.loads(out.read_text())
    assert (answer["capd"], answer["code"]) == ("refused", "started_by_capd")
