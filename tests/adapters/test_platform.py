"""What the operating system reports about processes and peers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from types import ModuleType

import pytest

from capd.adapters import platform
from capd.adapters.platform import portable

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")


def in_a_process(program: str) -> str:
    """Run `program` in another process, because it changes the process for its whole life."""
    command = [sys.executable, "-c", f"from capd.adapters import platform\n{program}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def until(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not is_so() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_so()


def test_the_peer_of_a_unix_socket_is_named_by_the_kernel() -> None:
    near, far = socket.socketpair()
    with near, far:
        peer = platform.peer_credentials(near)

    assert peer == (os.getpid(), os.getuid(), os.getgid())


@pytest.mark.parametrize("system", [platform, portable], ids=["this", "portable"])
def test_a_running_process_has_a_parent_a_start_and_a_size(system: ModuleType) -> None:
    if system is portable and shutil.which("ps") is None:
        pytest.skip("no ps")
    with subprocess.Popen(["sleep", "60"]) as child:
        assert until(lambda: (system.rss_bytes(child.pid) or 0) > 4096)
        assert system.parent_pid(child.pid) == os.getpid()
        above = system.ancestors(child.pid)
        assert above[:2] == [os.getpid(), os.getppid()]
        assert above == [os.getpid(), *system.ancestors(os.getpid())]
        assert system.process_start_time(child.pid) == system.process_start_time(child.pid)
        assert system.process_start_time(child.pid) is not None
        child.kill()


@pytest.mark.parametrize("system", [platform, portable], ids=["this", "portable"])
def test_a_process_that_is_gone_has_nothing(system: ModuleType) -> None:
    child = subprocess.Popen(["true"])
    child.wait()

    facts = [
        system.rss_bytes(child.pid),
        system.parent_pid(child.pid),
        system.process_start_time(child.pid),
    ]

    assert facts == [None, None, None]


@linux_only
def test_a_zombie_has_no_start_time() -> None:
    child = subprocess.Popen(["true"])

    assert until(lambda: platform.process_start_time(child.pid) is None)
    child.wait()


@linux_only
def test_descendants_are_all_generations() -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; :'; :"]) as child:
        assert until(lambda: len(platform.descendants(child.pid)) == 2)
        found = platform.descendants(child.pid)
        assert platform.parent_pid(found[0]) == child.pid
        assert platform.parent_pid(found[1]) == found[0]
        for pid in [child.pid, *found]:
            os.kill(pid, 9)


@linux_only
def test_a_subreaper_inherits_orphans() -> None:
    program = """
import os, subprocess, json
platform.become_subreaper()
script = "sleep 60 >/dev/null 2>&1 & echo $!"
pid = int(subprocess.run(["sh", "-c", script], capture_output=True).stdout)
own = os.getpid()
print(json.dumps([platform.parent_pid(pid) == own, platform.descendants(own) == [pid]]))
os.kill(pid, 9)
"""

    assert json.loads(in_a_process(program)) == [True, True]


@linux_only
def test_an_undumpable_process_hides_its_environment() -> None:
    program = """
import os
platform.set_dumpable(False)
print(os.stat(f"/proc/{os.getpid()}/environ").st_uid, end=" ")
platform.set_dumpable(True)
print(os.stat(f"/proc/{os.getpid()}/environ").st_uid)
"""

    assert in_a_process(program) == f"0 {os.getuid()}"


def test_trimming_memory_is_harmless() -> None:
    platform.trim_memory()


GIB = 1 << 30
LIMITED = """
import resource, sys
before, most = int(sys.argv[1]), int(sys.argv[2])
if before:
    resource.setrlimit(resource.RLIMIT_AS, (before, before))
from capd.adapters.platform.limits import limit_to
limit_to(resource.RLIMIT_AS, most)
print(*resource.getrlimit(resource.RLIMIT_AS))
"""


@pytest.mark.parametrize(
    ("before", "expected"), [(0, 2 * GIB), (3 * GIB, 2 * GIB), (GIB, GIB)], ids=str
)
def test_a_limit_is_lowered_and_never_raised(before: int, expected: int) -> None:
    argv = [sys.executable, "-P", "-c", LIMITED, str(before), str(2 * GIB)]

    done = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert done.stdout.split() == [str(expected)] * 2
