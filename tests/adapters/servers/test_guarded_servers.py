"""At level `guard`, ordinary servers keep everything that they have without capd."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trio

from capd.adapters import platform
from capd.adapters.servers import sandboxing
from capd.adapters.servers.processes import ProcessSpec, running
from capd.adapters.servers.sandboxing import SandboxPlan, own_folders
from capd.core.servers.sandbox import SandboxFeatures, SandboxRequest
from capd_protos.places import places

pytestmark = pytest.mark.skipif(
    not sandboxing.machine().can_hide, reason="this machine allows no mount namespaces"
)

PATIENCE = 30.0
ALL = ", ".join(["guard", *("capd hidden", "apart")[: 1 + sandboxing.machine().can_separate]])


class Place:
    """capd's folders, and servers that are shell scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.where = places({"CAPD_HOME": str(root / "capd"), "HOME": str(root)}, os.getuid())
        self.folders = own_folders(self.where, {})
        self.secrets = Path(self.where.config, "secrets.env")
        self.secrets.write_text("KEY=canary")
        self.environment = {"HOME": str(root), "PATH": os.environ["PATH"]}

    def box(self, **more: Any) -> SandboxPlan:
        return replace(
            SandboxPlan(SandboxRequest(), (), self.environment, folders=self.folders), **more
        )

    async def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        box: SandboxPlan | None = None,
        env: dict[str, str] | None = None,
    ) -> tuple[str, str]:
        """Return what a server prints, and the description of its confinement."""
        spec = ProcessSpec(
            argv, {**self.environment, **(env or {})}, cwd or self.root, box or self.box()
        )
        said = b""
        with trio.fail_after(PATIENCE):
            async with running(spec) as process:
                while chunk := await process.stdout.receive_some():
                    said += chunk
                return said.decode(), process.sandbox


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_capds_folders_are_hidden_and_the_rest_is_as_it_is(place: Place) -> None:
    script = f"cat {place.secrets} || echo none; echo kept > ~/kept; ls -A {place.where.config}"

    said = await place.run("sh", "-c", script)

    assert said == ("none\n", ALL)
    assert (place.root / "kept").read_text() == "kept\n"


async def test_a_shared_server_runs_in_its_folder_and_keeps_what_it_writes_there(
    place: Place,
) -> None:
    shared = Path(place.where.state, "shared")
    shared.mkdir()

    said = await place.run("sh", "-c", "echo x > kept; pwd; cat ../trust.json || ls ..", cwd=shared)

    assert said == (f"{shared}\nshared\n", ALL)
    assert (shared / "kept").read_text() == "x\n"


async def test_a_script_next_to_the_configuration_runs_with_what_lies_beside_it(
    place: Place,
) -> None:
    folder = Path(place.where.config)
    (folder / "helper.sh").write_text("echo helped\n")
    script = folder / "server.sh"
    script.write_text(f". {folder}/helper.sh; cat {place.secrets} || echo none\n")

    said = await place.run("sh", str(script))

    assert said == ("helped\nnone\n", ALL)


async def test_a_server_that_runs_in_the_configuration_sees_it_and_that_is_said(
    place: Place,
) -> None:
    folder = Path(place.where.config)

    said, told = await place.run("sh", "-c", "cat secrets.env", cwd=folder)

    assert said == "KEY=canary"
    assert told == f"{ALL} (it lives in {folder})"


@pytest.mark.parametrize("tap", ["boats", "others"])
async def test_a_taps_server_may_write_in_its_own_tap_alone(place: Place, tap: str) -> None:
    folder = Path(place.where.data, "taps", "boats")
    folder.mkdir(parents=True)
    script = folder / "server.sh"
    script.write_text("echo here; echo x > $(dirname $0)/written && echo written\n")

    said, _ = await place.run("sh", str(script), box=place.box(tap=tap))

    assert said == ("here\nwritten\n" if tap == "boats" else "here\n")


@pytest.mark.parametrize("may_connect", [False, True])
async def test_the_socket_is_kept_for_a_server_that_may_connect(
    place: Place, may_connect: bool
) -> None:
    source = f"import socket; socket.socket(socket.AF_UNIX).connect({place.where.socket!r})"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(place.where.socket)
        listener.listen()

        said, _ = await place.run(
            *("sh", "-c", f'{sys.executable} -I -c "{source}" 2>/dev/null && echo connected'),
            box=place.box(may_connect=may_connect),
        )

    assert said == ("connected\n" if may_connect else "")


async def test_nothing_is_hidden_from_a_server_of_which_the_user_says_so(place: Place) -> None:
    script = f"cat {place.secrets}"

    uncovered = await place.run(
        "sh", "-c", script, box=place.box(sandbox_request=SandboxRequest(is_covered=False))
    )
    off = await place.run("sh", "-c", script, box=place.box(sandbox_request=SandboxRequest("off")))

    assert uncovered[0] == off[0] == "KEY=canary"
    assert off[1] == "off"
    assert uncovered[1] == ("guard, apart" if sandboxing.machine().can_separate else "guard")


async def test_a_machine_that_can_do_nothing_runs_servers_as_before(place: Place) -> None:
    box = place.box(machine=SandboxFeatures)

    assert await place.run("sh", "-c", f"cat {place.secrets}", box=box) == ("KEY=canary", "guard")


async def test_a_program_that_takes_privileges_is_left_as_it_is(place: Place) -> None:
    tools = place.root / "tools"
    tools.mkdir()
    theirs = place.root / "tap"
    theirs.mkdir()
    for folder, name in ((tools, "podman"), (theirs, "podman"), (tools, "docker")):
        (folder / name).write_text(f"#!/bin/sh\n# podman\ncat {place.secrets} || echo none\n")
        (folder / name).chmod(0o755)
    place.environment["PATH"] = f"{tools}:{place.environment['PATH']}"

    found = [await place.run(each) for each in ("podman", "docker", f"{theirs}/podman")]

    told = "guard (podman takes privileges that a confined program has not)"
    assert found == [("KEY=canary", told), ("KEY=canary", told), ("none\n", ALL)]


async def test_an_appimage_is_told_to_unpack_itself(place: Place) -> None:
    """It begins as every ELF program does, with two letters where others have zeros."""
    program = place.root / "program"
    shutil.copy(shutil.which("env") or "/usr/bin/env", program)
    program.chmod(0o755)
    plain, _ = await place.run(str(program))
    with program.open("r+b") as file:
        file.seek(8)
        file.write(b"AI\x02")

    marked, _ = await place.run(str(program))

    assert "APPIMAGE" not in plain
    assert "APPIMAGE_EXTRACT_AND_RUN=1\n" in marked


PARENT = """
import os, sys
os.kill(os.getppid(), 0)
os.kill(os.getpid(), 0)
print(os.getppid() > 1, len([name for name in os.listdir("/proc") if name.isdigit()]) > 3)
print(os.getuid(), os.getgid(), os.path.expanduser("~"))
print(open("/proc/self/environ").read().count("HOME"))
os.sched_setaffinity(0, os.sched_getaffinity(0))
child = os.fork()
if child == 0:
    os.execlp("sleep", "sleep", "100")
os.kill(child, 9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


async def test_a_server_sees_its_parent_other_processes_and_its_own(place: Place) -> None:
    said, _ = await place.run(sys.executable, "-I", "-c", PARENT)

    uid = f"{os.getuid()} {os.getgid()} {place.root}"
    assert said == f"True True\n{uid}\n1\n-9\n"


async def test_a_server_may_confine_its_own_programs(place: Place) -> None:
    """Browsers do so by namespaces, and others by bubblewrap."""
    bwrap = sandboxing.machine().bwrap
    if not bwrap:
        pytest.skip("this machine has no bubblewrap, or forbids it")

    said, _ = await place.run(
        *(bwrap, "--ro-bind", "/", "/", "--unshare-user", "--unshare-pid", "--proc", "/proc"),
        *("echo", "confined"),
        box=place.box(environment={**place.environment, "PATH": ""}),
    )

    assert said == "confined\n"


@contextlib.contextmanager
def included_by_ssh() -> Iterator[str]:
    """Yield a host whose name a file of root says, which the machine's configuration includes."""
    file = Path("/etc/ssh/ssh_config.d/capd-test.conf")
    file.write_text("Host capd-test\n  HostName 192.0.2.7\n")
    try:
        yield "capd-test"
    finally:
        file.unlink()


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ssh") or not Path("/etc/ssh/ssh_config.d").is_dir(),
    reason="takes root, to write in /etc/ssh, and ssh",
)
def test_ssh_of_an_ordinary_user_reads_what_the_machines_configuration_includes() -> None:
    python = shutil.which("python3", path="/usr/bin")
    users = [each for each in pwd.getpwall() if each.pw_uid not in {0, 65534}]
    if python is None or not shutil.which("setpriv") or not users:
        pytest.skip("takes setpriv, another user, and a Python that everybody may run")
    user, group = users[0].pw_uid, users[0].pw_gid
    script = Path(platform.__file__).parent
    become = ("setpriv", "--reuid", str(user), "--regid", str(group), "--clear-groups")
    # Not below pytest's own folder, which is closed to others.
    with tempfile.TemporaryDirectory() as hidden, included_by_ssh() as host:
        Path(hidden).chmod(0o755)
        answers = [
            subprocess.run(
                [
                    *become,
                    python,
                    "-I",
                    "-S",
                    "-c",
                    SSH,
                    str(script),
                    host,
                    f"--hide={hidden}",
                    *options,
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            for options in (
                (f"--hide={hidden}",),
                (f"--hide={hidden}", f"--own=/etc/ssh/ssh_config.d/{host}.conf"),
            )
        ]

    assert "Bad owner or permissions" in answers[0].stderr
    assert "hostname 192.0.2.7" in answers[1].stdout


SSH = """
import posix, sys
sys.path.insert(0, sys.argv[1])
import confine
assert confine.confine(sys.argv[3:]) == ["hidden"]
posix.execv("/usr/bin/ssh", ["ssh", "-G", sys.argv[2]])
"""
