"""Machines that lack something get a clear error or a line in the status."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from whole_daemon import Home, wait_for

from .world import World

pytestmark = pytest.mark.reliability

RUN = [sys.executable, "-P", "-m", "capd", "daemon", "run"]
CLOSED = 'exec "$0" "$@" <&- >&- 2>&-'
NO_PROC = 'mount -t tmpfs none /proc && exec "$0" "$@"'
WITHOUT_THREADS = Path(__file__).parent / "daemon_without_threads.py"
ENDED_IN = 60.0


def limited(name: str, amount: int) -> list[str]:
    """Return a command that runs another one under a limit."""
    text = f"import os, resource, sys; resource.setrlimit(resource.{name}, ({amount}, {amount}))"
    return [sys.executable, "-I", "-c", f"{text}; os.execv(sys.argv[1], sys.argv[1:])"]


def without_proc() -> list[str]:
    """Return a command that runs another one where nothing is in /proc, or skip."""
    spaces = ["--mount"] if os.geteuid() == 0 else ["--mount", "--user", "--map-root-user"]
    command = ["unshare", *spaces, "sh", "-c", NO_PROC]
    tried = shutil.which("unshare") and subprocess.run(
        [*command, "true"], capture_output=True, check=False
    )
    if not tried or tried.returncode:
        pytest.skip("no mount namespace can be made here")
    return command


def refused(home: Home, under: Sequence[str]) -> str:
    """Return what a daemon says that does not start."""
    done = subprocess.run(
        [*under, *RUN],
        env=home.env,
        cwd=home.folder,
        capture_output=True,
        text=True,
        timeout=ENDED_IN,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    (line,) = [each for each in done.stderr.splitlines() if not each.startswith("{")]
    return line


def degraded(world: World, under: Sequence[str]) -> list[str]:
    """Return what the status says of a daemon that starts, once a server has answered there."""
    world.honest("neighbour")
    world.process = world.home.start(under=under)
    world.open_neighbour()
    world.ask_neighbour()
    found: list[str] = world.home.ask("status")["daemon"]["degraded"]
    assert "Traceback" not in world.log()
    return found


def test_without_proc_it_does_not_start_and_says_what_to_mount(world: World) -> None:
    line = refused(world.home, without_proc())

    assert line == (
        "capd: /proc is not there, so capd cannot tell who connects to its socket, nor end what "
        "its servers start. Mount it: mount -t proc proc /proc"
    )


@pytest.mark.parametrize(
    ("under", "said"),
    [
        (limited("RLIMIT_NOFILE", 64), "only 64 files may be open at once"),
        (limited("RLIMIT_AS", 600_000_000), "may have 572 MiB of address space"),
        (limited("RLIMIT_DATA", 200_000_000), "may have 190 MiB of data"),
    ],
    ids=["descriptors", "address-space", "data"],
)
def test_with_less_than_the_least_it_does_not_start_and_says_what_to_allow(
    world: World, under: list[str], said: str
) -> None:
    line = refused(world.home, under)

    assert said in line
    assert "Allow more: ulimit -" in line


@pytest.mark.parametrize(
    ("under", "said"),
    [
        (limited("RLIMIT_NOFILE", 200), "only 200 files may be open at once"),
        (limited("RLIMIT_AS", 1_500_000_000), "may have 1430 MiB of address space only"),
        (limited("RLIMIT_DATA", 1_000_000_000), "may have 953 MiB of data only"),
    ],
    ids=["descriptors", "address-space", "data"],
)
def test_with_little_it_serves_and_the_status_says_so(
    world: World, under: list[str], said: str
) -> None:
    (line,) = degraded(world, under)

    assert said in line


def test_with_closed_standard_streams_it_serves_and_its_log_is_in_the_file(world: World) -> None:
    (line,) = degraded(world, ["sh", "-c", CLOSED])

    file = world.home.folder / "state" / "capd.log"
    assert line == f"standard error was closed when the daemon started: its log is in {file}"
    assert "daemon_ready" in file.read_text()
    assert world.home.log() == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="the daemon shows its descriptors to root alone")
def test_what_the_daemon_opens_first_is_not_taken_for_a_standard_stream(world: World) -> None:
    degraded(world, ["sh", "-c", CLOSED])
    assert world.process is not None

    links = [str(Path(f"/proc/{world.process.pid}/fd/{n}").readlink()) for n in range(3)]

    assert links == ["/dev/null", "/dev/null", str(world.home.folder / "state" / "capd.log")]


HELLO = {
    "capd": "hello",
    "protocol": 1,
    "role": "mcp",
    "client": {"name": "test-editor"},
    "cwd": "/",
}


def refusals(links: Sequence[socket.socket]) -> set[str]:
    """Return the codes of the refusals that have come until now."""
    found = set()
    for link in links:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            for line in link.recv(1 << 16, socket.MSG_PEEK | socket.MSG_DONTWAIT).splitlines():
                answer = json.loads(line)
                if answer["capd"] == "refused":
                    found.add(answer["code"])
    return found


def test_without_a_free_descriptor_nobody_is_taken_for_a_process_of_a_server(world: World) -> None:
    world.honest("neighbour")
    world.process = world.home.start(under=limited("RLIMIT_NOFILE", 200))
    world.open_neighbour()
    with contextlib.ExitStack() as crowd:
        links = []
        for number in range(400):
            link = crowd.enter_context(socket.socket(socket.AF_UNIX))
            link.connect(world.home.socket)
            link.sendall(json.dumps({**HELLO, "session": f"s{number}"}).encode() + b"\n")
            links.append(link)

        said = wait_for(lambda: refusals(links))

        assert said == {"overloaded"}
        assert "peer_not_judged" in world.log()


def test_without_a_thread_it_serves_on(world: World) -> None:
    full = world.home.folder / "full"
    world.honest("neighbour")
    under = [sys.executable, "-P", str(WITHOUT_THREADS), str(full)]
    world.process = world.home.start(under=under)
    world.open_neighbour()

    full.touch()
    # The daemon looks at its socket every second.
    wait_for(lambda: "can't start new thread" in world.log() and '"task":"socket"' in world.log())
    world.ask_neighbour()
    full.unlink()
    Path(world.home.socket).unlink()

    wait_for(lambda: Path(world.home.socket).exists())
    assert "Traceback" not in world.log()


@pytest.mark.parametrize("name", ["cache", "config"])
def test_a_folder_that_may_not_be_entered_keeps_no_daemon_from_its_start(
    world: World, name: str
) -> None:
    world.honest("neighbour")
    folder = world.home.folder / name
    folder.mkdir(exist_ok=True)
    folder.chmod(0)
    # Root may enter every folder, unless it gives that up.
    under = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    if os.geteuid() == 0 and not shutil.which(under[0]):
        pytest.skip("takes setpriv")

    world.process = world.home.start(under=under if os.geteuid() == 0 else [])

    folder.chmod(0o700)
    world.kill_daemon()
