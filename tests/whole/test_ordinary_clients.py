"""Clients of every ordinary kind are accepted, whatever process started them."""

import json
import shutil
import subprocess
import sys

import pytest

from capd.adapters.servers import sandboxing
from whole_daemon import Home

ASK = """
import json, pathlib, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
hello = {"capd": "hello", "protocol": 1, "role": "control", "client": {"name": "editor"}}
link.sendall(json.dumps(hello).encode() + b"\\n")
print(link.makefile().readline(), end="", flush=True)
"""
ORPHANED = """
import os, sys
if os.fork() == 0:
    os.setsid()
    parent = os.getpid()
    if os.fork() == 0:
        while os.getppid() == parent:
            pass
        os.execv(sys.argv[1], sys.argv[1:])
    os._exit(0)
os.wait()
"""
# As a user's systemd does: it adopts what is orphaned below it.
ADOPTING = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    os.execv(sys.argv[1], sys.argv[1:])
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""
PYTHON = (sys.executable, "-I", "-c")
BWRAP = ("bwrap", "--dev-bind", "/", "/")

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="this is Linux' way")
needs_bwrap = pytest.mark.skipif(
    not sandboxing.machine().bwrap, reason="this machine has no bubblewrap, or forbids it"
)


@pytest.mark.parametrize(
    "under",
    [
        pytest.param((), id="from a shell"),
        pytest.param(("setsid", "--wait"), id="in a session of its own", marks=ON_LINUX),
        pytest.param((*PYTHON, ORPHANED), id="with parents that are gone"),
        pytest.param(
            (*PYTHON, ADOPTING, *PYTHON, ORPHANED), id="adopted by a manager", marks=ON_LINUX
        ),
        pytest.param(BWRAP, id="in a sandbox", marks=needs_bwrap),
        pytest.param(
            (*BWRAP, "--unshare-pid", "--proc", "/proc"), id="in a container", marks=needs_bwrap
        ),
        pytest.param(
            (*BWRAP, "--unshare-pid", "--as-pid-1"), id="a container's first", marks=needs_bwrap
        ),
    ],
)
def test_a_client_is_let_in(home: Home, under: tuple[str, ...]) -> None:
    home.start()

    assert answered(home, under) == "welcome"


@ON_LINUX
def test_a_client_outside_of_the_daemons_container_is_let_in(home: Home) -> None:
    # The user is the same on both sides, or the daemon would not take the client for its own.
    contained = ("unshare", "--map-current-user", "--pid", "--fork", "--kill-child", "--mount-proc")
    if shutil.which("unshare") is None or subprocess.run([*contained, "true"]).returncode:  # noqa: PLW1510
        pytest.skip("no pid namespace can be made")
    container = home.start(under=contained)

    said = answered(home, ())

    # `unshare` does not end before its child, whatever it is asked; the child ends with it.
    container.kill()
    container.wait()
    assert said == "welcome"


def answered(home: Home, under: tuple[str, ...]) -> str:
    """Send a hello from a process below others; return the kind of the answer."""
    done = subprocess.run(
        [*under, sys.executable, "-I", "-c", ASK, home.socket],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return str(json.loads(done.stdout)["capd"])
