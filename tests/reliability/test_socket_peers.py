"""Processes of a server at capd's own socket: none of them is taken for a person's.

Each attack runs from inside a server, with an honest session beside it.
"""

import contextlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.servers import sandboxing
from whole_daemon import Home, wait_for

from .world import World, world_of_its_own

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at in Linux' ways"),
]

CLIMBING_SERVER = Path(__file__).parent / "climbing_server.py"
DEPTH = 200
EACH = 25
"""Connections of one chain: each is a try."""
TRIES = int(os.environ.get("CAPD_CLIMBS", "200"))
IDLE = 1500
"""Connections without a hello; far more than there are places."""
KEPT = 256
"""Of them, by docs/protocol.md."""

needs_bwrap = pytest.mark.skipif(
    not sandboxing.machine().bwrap, reason="this machine has no bubblewrap, or forbids it"
)


class OpenHome(Home):
    """A home whose socket lies in the project, where a strict sandbox shows it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.project = folder / "project"
        self.project.mkdir(mode=0o700)
        self.env["CAPD_SOCKET"] = self.socket

    @property
    def socket(self) -> str:
        return str(self.folder / "project" / "s")


@pytest.fixture
def hostile() -> Iterator[World]:
    with world_of_its_own(home_in=OpenHome) as made:
        yield made


def climbing(world: World, level: str) -> None:
    """Define the climbing server at a level of the sandbox."""
    home = world.home
    assert isinstance(home, OpenHome)
    # In the project: the rest of this checkout may be hidden from it.
    script = shutil.copy(CLIMBING_SERVER, home.project)
    home.capability("climber", [sys.executable, "-I", str(script), home.socket, home.tag])
    file = home.folder / "tap/capabilities/climber/default.toml"
    file.write_text(file.read_text() + f'sandbox = "{level}"\n')


def climb(world: World, tries: int, *, stops: bool = False) -> Counter[str]:
    """Have the server try, and return how its hellos were answered."""
    session = world.session("climber", "climber", folder=world.home.folder / "project")
    said: Counter[str] = Counter()
    while said.total() < tries:
        asked = {"depth": DEPTH, "each": EACH, "tries": tries - said.total(), "seconds": 20}
        said += Counter(
            json.loads(session.said("climber__climb", json.dumps(asked | {"stops": stops})))
        )
        world.ask_neighbour()
    return said


@pytest.mark.parametrize("level", ["guard", pytest.param("strict", marks=needs_bwrap)])
def test_a_chain_that_collapses_is_never_a_persons(hostile: World, level: str) -> None:
    climbing(hostile, level)
    hostile.start()

    said = climb(hostile, TRIES)

    assert set(said) == {"started_by_capd"}


def test_a_daemon_that_is_stopped_while_the_chain_collapses_is_not_fooled(hostile: World) -> None:
    climbing(hostile, "off")
    # At any other level the kernel may refuse it the signal.
    settings = hostile.home.folder / "config" / "config.toml"
    settings.write_text('[sandbox]\nlevel = "off"\n')
    hostile.start()

    said = climb(hostile, TRIES // 2, stops=True)

    assert set(said) == {"started_by_capd"}


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process open as many files as an ordinary user may, not as many as a shell does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"only {hard} open files are allowed here")
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_idle_connections_to_the_socket_keep_nobody_out(hostile: World) -> None:
    hostile.start()
    links = []
    with contextlib.ExitStack() as crowd:
        for _ in range(IDLE):
            link = crowd.enter_context(socket.socket(socket.AF_UNIX))
            link.connect(hostile.home.socket)

            links.append(link)

        answered = hostile.home.ask("status")

        # The oldest have gone, long before they are late.
        assert answered["daemon"]["pid"]
        wait_for(lambda: sum(map(is_closed, links)) >= IDLE - KEPT)


def is_closed(link: socket.socket) -> bool:
    """Tell whether the daemon has closed its end."""
    try:
        return link.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


CONNECTS = """
import os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
if os.fork() == 0:
    # The connection stays open in another process, and its own number is free.
    hello = b'{"capd":"hello","protocol":1,"role":"control","client":{"name":"x"}}\\n'
    sys.stdin.readline()
    link.sendall(hello)
    sys.stdout.write(link.makefile().readline())
    sys.stdout.flush()
else:
    sys.stdout.write(f"{os.getpid()}\\n")
    sys.stdout.flush()
os._exit(0)
"""


def test_a_number_that_was_given_again_vouches_for_nobody(hostile: World) -> None:
    """A process connects and ends; an innocent one gets its number before it is judged."""
    hostile.start()
    argv = [sys.executable, "-I", "-S", "-c", CONNECTS, hostile.home.socket]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        pid = int(held.stdout.readline())
        held.wait()

        innocent = started_as(pid)

        try:
            held.stdin.write("go\n")
            held.stdin.flush()
            answer = json.loads(held.stdout.readline())
        finally:
            innocent.kill()
            innocent.wait()
    assert (answer["capd"], answer["code"]) == ("refused", "started_by_capd")


def started_as(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that has this number."""
    last = Path("/proc/sys/kernel/ns_last_pid")
    for _ in range(200):
        try:
            last.write_text(str(pid - 1))
        except OSError:
            pytest.skip("only root may say which number comes next")
        made = subprocess.Popen(["sleep", "600"])
        if made.pid == pid:
            return made
        made.kill()
        made.wait()
    pytest.skip("others take the number first")
