"""The chain of a process's ancestors, by which trust is decided."""

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from capd.adapters import platform
from capd.adapters.clients.peers import Peer, Peers
from capd.adapters.platform import linux_peers
from capd.core.servers.ancestry import Chain, Missing, Process

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="this is Linux' way")

CONNECTS = """
import socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
link.sendall(b"x")
sys.stdin.read()
"""
ORPHAN = """
import os, subprocess, sys
if os.fork() == 0:
    os.setsid()
    subprocess.Popen(sys.argv[1:])
os._exit(0)
"""


@contextmanager
def connected(folder: Path, peers: Peers, prefix: tuple[str, ...] = ()) -> Iterator[Peer]:
    """Run a child that connects, started with `prefix` before its argv."""
    path = str(folder / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        argv = [*prefix, sys.executable, "-I", "-S", "-c", CONNECTS, path]
        with subprocess.Popen(argv, stdin=subprocess.PIPE) as child:
            accepted, _ = listening.accept()
            with accepted, closing(peers.of(accepted)) as peer:
                assert accepted.recv(1) == b"x"
                yield peer
                assert child.stdin is not None
                child.stdin.close()


def peers_below(daemon: int) -> Peers:
    """Return peers as a daemon of another number judges them."""
    peers = Peers()
    peers._daemon = daemon
    return peers


@pytest.fixture(params=["as the kernel tells", "by /proc"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Judge with every way that a kernel may lack."""
    if request.param == "by /proc":
        monkeypatch.setattr(linux_peers, "_gives_info", lambda: False)
        monkeypatch.setattr(platform, "peer_pidfd", lambda _connection: None)
    return str(request.param)


async def test_a_child_is_below_us(tmp_path: Path) -> None:
    with connected(tmp_path, Peers()) as peer:
        assert await peer.verdict() == "descendant"


async def test_whom_others_have_started_is_a_person(tmp_path: Path) -> None:
    # As another daemon sees it, which is no ancestor of the test.
    with subprocess.Popen(["sleep", "60"]) as other:
        with connected(tmp_path, peers_below(other.pid)) as peer:
            found = await peer.verdict()
        other.kill()

    assert found == "person"


@ON_LINUX
async def test_whose_parents_are_gone_is_a_person(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        peers = peers_below(other.pid)
        orphaned = (sys.executable, "-I", "-S", "-c", ORPHAN)
        with connected(tmp_path, peers, orphaned) as peer:
            found = await peer.verdict()
        other.kill()

    assert found == "person"


async def test_a_process_that_is_gone_is_nobodys_word(tmp_path: Path) -> None:
    with connected(tmp_path, Peers()) as peer:
        pass

    ended = Peer(Peers(), peer.pid, os.getuid(), None, "some process that had this number")

    assert await ended.verdict() == "gone"
    assert not platform.has_terminal(peer.pid)


async def test_a_process_that_ends_while_it_is_connected_is_gone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        argv = [sys.executable, "-I", "-S", "-c", CONNECTS, path]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE)
        accepted, _ = listening.accept()
        with accepted, closing(peers_below(child.pid + 1).of(accepted)) as peer:
            child.communicate()

            assert await peer.verdict() == "gone"


async def test_who_has_no_number_here_is_outside() -> None:
    assert await Peer(Peers(), 0, os.getuid(), None, "").verdict() == "outside"


async def test_a_mark_says_whose_it_is_wherever_it_hangs(tmp_path: Path) -> None:
    peers = Peers(lambda _pid: True)
    peers._daemon = -1

    with connected(tmp_path, peers) as peer:
        assert await peer.verdict() == "descendant"


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Use up all file descriptors of this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    filler = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (filler[0] + 20, before[1]))
    try:
        with suppress(OSError):
            while True:
                filler.append(os.dup(filler[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for each in filler:
            os.close(each)


@ON_LINUX
async def test_who_cannot_be_looked_at_is_not_taken_for_a_servers(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        with connected(tmp_path, peers_below(other.pid)) as peer:
            with no_descriptors():
                during = await peer.verdict()
            after = await peer.verdict()
        other.kill()

    assert (during, after) == ("no_descriptors", "person")


@ON_LINUX
async def test_who_cannot_even_be_held_is_not_taken_for_a_servers(tmp_path: Path, way: str) -> None:
    peers = Peers()
    with (
        connected(tmp_path, peers),
        socket.socket(socket.AF_UNIX) as one,
        socket.socket(socket.AF_UNIX) as other,
    ):
        path = str(tmp_path / "t")
        one.bind(path)
        one.listen()
        other.connect(path)
        accepted, _ = one.accept()
        with accepted, no_descriptors():
            peer = peers.of(accepted)

            found = await peer.verdict()

    assert found == "no_descriptors"


def test_a_chain_is_read_twice_and_whether_its_process_has_ended_is_asked_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this order: a chain that was read once could be a mixture of two."""
    done: list[object] = []
    look_at = platform.look_at

    def look(pid: int) -> Process | Missing:
        done.append(pid)
        return look_at(pid)

    def is_marked(_pid: int) -> bool:
        done.append("mark")
        return False

    def has_ended(_chains: tuple[Chain, Chain]) -> bool:
        done.append("end")
        return False

    monkeypatch.setattr(platform, "look_at", look)
    peers = Peers(is_marked)
    peers._daemon = -1

    found = peers.facts(os.getpid(), has_ended)

    first, second = found.chains
    above = [each.pid for each in first.processes]
    assert first == second
    assert above[:2] == [os.getpid(), os.getppid()]
    assert done == [*above, *above, "mark", "end"]


@ON_LINUX
@pytest.mark.parametrize("is_there", [True, False])
def test_without_proc_a_process_is_hidden_or_gone(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    def unreadable(_self: Path) -> bytes:
        raise FileNotFoundError

    with subprocess.Popen(["sleep", "60"]) as child:
        if not is_there:
            child.kill()
            child.wait()
        monkeypatch.setattr(Path, "read_bytes", unreadable)

        seen = linux_peers._from_proc(child.pid)

        child.kill()
    assert seen == ("hidden" if is_there else "gone")


@ON_LINUX
def test_both_ways_name_the_same_parent() -> None:
    seen = [platform.look_at(os.getpid()), linux_peers._from_proc(os.getpid())]

    assert all(isinstance(each, Process) and each.parent == os.getppid() for each in seen)


@pytest.mark.parametrize(("wrapped", "expected"), [(False, False), (True, True)])
def test_a_terminal_is_seen(wrapped: bool, expected: bool) -> None:
    look = (
        "import os; from capd.adapters import platform; print(platform.has_terminal(os.getpid()))"
    )
    command = [sys.executable, "-P", "-c", look]
    if wrapped:
        command = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command]

    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == str(expected)
