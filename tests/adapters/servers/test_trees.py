"""The daemon ends adopted processes of servers, and leaves processes of its own alone."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from capd.adapters import platform
from capd.adapters.platform import cgroups, watcher
from capd_protos.tree_marks import Mark

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux has subreapers and /proc")


def in_a_process(program: str, *arguments: str) -> str:
    """Run a program in another process, because a process stays a subreaper for life."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ADOPTING = """
import os, pathlib, resource, subprocess, sys, time
from capd.adapters import platform
from capd.adapters.servers.trees import TREES

def orphan(*, limit):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        if not os.fork():
            if limit:
                resource.setrlimit(10, (limit, limit))
            os.write(writer, str(os.getpid()).encode())
            os.execvp("sleep", ["sleep", "600"])
        os._exit(0)
    os.waitpid(child, 0)
    pid = int(os.read(reader, 20))
    while platform.parent_pid(pid) != os.getpid():
        time.sleep(0.01)
    return pid

TREES.begin(pathlib.Path(sys.argv[1]), is_service=False)
"""


def test_an_adopted_process_is_killed_and_collected(tmp_path: Path) -> None:
    said = in_a_process(
        ADOPTING
        + """
pid = orphan(limit=TREES.limit)
print(TREES.end_adopted(), os.path.exists(f"/proc/{pid}"), TREES.end_adopted())
""",
        str(tmp_path),
    )

    assert said == "1 False 0"


def test_exit_codes_of_the_daemons_own_children_are_theirs_who_wait(tmp_path: Path) -> None:
    said = in_a_process(
        ADOPTING
        + """
own = [subprocess.Popen([sys.executable, "-c", f"raise SystemExit({n})"]) for n in range(10)]
plain = orphan(limit=0)
for _ in range(50):
    orphan(limit=TREES.limit)
    TREES.end_adopted()
print([each.wait() for each in own] == list(range(10)), os.path.exists(f"/proc/{plain}"))
os.kill(plain, 9)
""",
        str(tmp_path),
    )

    assert said == "True True"


def test_a_guard_that_is_known_is_not_adopted(tmp_path: Path) -> None:
    said = in_a_process(
        ADOPTING
        + """
limits = lambda: resource.setrlimit(10, (TREES.limit, TREES.limit))
guard = subprocess.Popen(["sleep", "600"], preexec_fn=limits)
tree = TREES.enter(guard.pid)
before = TREES.end_adopted()
guard.kill()
guard.wait()
TREES.leave(tree, is_guard_lost=True)
print(before, guard.returncode)
""",
        str(tmp_path),
    )

    assert said == "0 -9"


def test_marks_are_found_in_the_environment_and_in_the_limit(tmp_path: Path) -> None:
    mark = Mark("00000001", f"{os.getpid():016x}"[::-1])
    limit = mark.limit(None)
    named = subprocess.Popen(["sleep", "600"], env={"CAPD_INSTANCE": mark.of_server})
    limited = subprocess.Popen(["prlimit", f"--locks={limit}:{limit}", "sleep", "600"], env=None)
    other = subprocess.Popen(["sleep", "600"], env={"NOT_CAPD_INSTANCE": mark.of_server})
    try:
        wanted = mark.this_life
        arguments = (wanted.low, wanted.high, wanted.prefix.encode())
        while platform.hard_limit(limited.pid) is None:
            pass

        assert sorted(platform.marked(*arguments)) == sorted([named.pid, limited.pid])
        assert platform.end_marked(*arguments)
        assert [named.wait(), limited.wait()] == [-9, -9]
        assert not platform.end_marked(*arguments)
        assert other.poll() is None
    finally:
        for process in (named, limited, other):
            process.kill()
            process.wait()


def test_a_number_that_was_given_again_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "600"]) as somebody:
        # By the time it is looked at again, the process of this number has no mark.
        watcher.end([somebody.pid], lambda _pid: False)

        assert somebody.poll() is None
        somebody.kill()


def test_groups_are_made_only_where_systemd_leaves_them_to_the_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tmp_path / "systemctl"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    group = tmp_path / "capd.service"
    group.mkdir()

    said.write_text("#!/bin/sh\necho no\n")
    said.chmod(0o755)
    refused = cgroups.delegated_groups(group)
    left = list(group.iterdir())
    said.write_text("#!/bin/sh\necho yes\n")
    given = cgroups.delegated_groups(group)

    assert (refused, left) == (None, [])
    assert given is not None
    assert sorted(each.name for each in group.iterdir()) == ["daemon", "servers"]
    assert (group / "daemon/cgroup.procs").read_text() == str(os.getpid())
