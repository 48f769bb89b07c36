"""An ended session's memory is freed without the cycle collector."""

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from capd.actors.session.activation import Activation
from capd.actors.session.calls import SessionCalls
from capd.actors.session.memories import SessionMemories
from capd.actors.session.own_calls import OwnCalls
from capd.actors.session.server_requests import ServerRequests
from capd.actors.session.session import Session as CapdSession
from capd.actors.session.turns import SessionTurns
from capd.adapters.clients.direct_calls import DirectCalls
from capd.adapters.clients.requests_in_flight import RequestsInFlight
from capd.adapters.clients.socket_sink import SocketSink
from capd.adapters.clients.upstream import Upstream
from capd.adapters.platform import rss_bytes
from capd.adapters.servers.instance import Instance
from capd.adapters.servers.processes import ServerProcess
from capd.adapters.servers.server_connection import ServerConnection
from capd.adapters.servers.server_run import ServerRun
from capd.core.sessions.session import SessionState
from capd.core.sessions.surface import Surface
from whole_daemon import wait_for

from .world import MIB, Session, World

pytestmark = pytest.mark.reliability

COUNTING_DAEMON = Path(__file__).parent / "counting_daemon.py"
OF_A_SESSION = (
    CapdSession,
    Activation,
    SessionCalls,
    SessionTurns,
    ServerRequests,
    OwnCalls,
    SessionMemories,
    SessionState,
    Surface,
    Upstream,
    RequestsInFlight,
    DirectCalls,
    SocketSink,
)
OF_A_SERVER = (Instance, ServerConnection, ServerProcess, ServerRun)
"""The types themselves: a name in a text would be of nothing once they are renamed."""
ROUNDS = 4
MANY = 300


class Counted:
    """A world whose daemon counts its objects."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._file = world.home.folder / "counts.json"
        world.honest("first")
        world.honest("second", "echo,slow")
        world.home.python = sys.executable
        under = [sys.executable, "-P", str(COUNTING_DAEMON), str(self._file)]
        world.process = world.home.start(under=under)

    def counts(self) -> dict[str, int]:
        assert self.world.process is not None
        self._file.unlink(missing_ok=True)
        os.kill(self.world.process.pid, signal.SIGUSR2)
        wait_for(self._file.exists)
        found: dict[str, int] = json.loads(self._file.read_text())
        return found

    def left(self, kinds: tuple[type, ...]) -> dict[str, int]:
        counted = self.counts()
        names = [f"{kind.__module__}.{kind.__qualname__}" for kind in kinds]
        return {name: counted[name] for name in names if counted.get(name)}

    def check_nothing_is_left(self) -> None:
        """Say that no object of a session or a server is left, a moment after the last end."""
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self.left(OF_A_SESSION + OF_A_SERVER), 10.0)
        left = self.left(OF_A_SESSION + OF_A_SERVER)
        # There is no session beside these: it would be counted as well.
        self.world.process = None
        assert left == {}

    def wait_until_all_are_gone(self) -> None:
        wait_for(lambda: not self.world.home.ask("sessions")["sessions"])
        wait_for(lambda: not self.world.home.servers())


def use(world: World, session: Session) -> None:
    """Do what leaves something behind: calls of each way, a search, a turn, a failed call."""
    for name in ("first", "second"):
        assert world.enable(session.key, name)["ok"]
    session.tools()
    session.said("first__echo", "hello")
    session.said("second__echo", "x" * 50_000)
    session.call("tool_search", {"query": "echo"})
    session.call("tool_call", {"name": "second__slow", "arguments": {"x": "y"}})
    session.call("no_such_tool")
    session.answer(session.ask("prompts/list", {}))
    session.answer(session.ask("resources/list", {}))
    world.home.ask("turn", session=session.key, text="please run first")
    world.home.ask("disable", session=session.key, name="second")


@pytest.mark.parametrize("is_stateless", [False, True], ids=["handshake", "stateless"])
def test_ended_sessions_leave_no_object_with_the_collector_off(
    world: World, is_stateless: bool
) -> None:
    counted = Counted(world)

    for number in range(10):
        session = Session(
            world.home.socket, f"s{number}", world.home.folder, is_stateless=is_stateless
        )
        use(world, session)
        session.leave()
    counted.wait_until_all_are_gone()

    counted.check_nothing_is_left()


def test_a_client_that_is_killed_within_a_call_leaves_no_object(world: World) -> None:
    counted = Counted(world)

    for number in range(5):
        editor = world.home.shim(f"s{number}")
        world.enable(f"s{number}", "first")
        editor._write(
            {
                "jsonrpc": "2.0",
                "id": 99,
                "method": "tools/call",
                "params": {"name": "first__echo", "arguments": {"x": "y" * 10_000}},
            }
        )
        editor.process.kill()
        editor.leave()
    counted.wait_until_all_are_gone()

    counted.check_nothing_is_left()


def test_what_is_counted_is_seen_while_it_is_there(world: World) -> None:
    counted = Counted(world)
    session = world.session("one", "first")
    session.said("first__echo", "hello")
    session.call("tool_search", {"query": "echo"})
    session.answer(session.ask("prompts/list", {}))

    found = counted.left(OF_A_SESSION + OF_A_SERVER)

    missing = {each.__qualname__ for each in OF_A_SESSION + OF_A_SERVER} - {
        name.rpartition(".")[2] for name in found
    }
    assert missing == set()
    session.leave()
    counted.wait_until_all_are_gone()
    counted.check_nothing_is_left()


def test_a_server_that_is_killed_leaves_no_object(world: World) -> None:
    counted = Counted(world)
    session = world.session("one", "first")

    (running,) = wait_for(world.home.servers)
    os.kill(running["pid"], signal.SIGKILL)
    wait_for(lambda: not world.home.servers())
    session.said("first__echo", "again")
    session.leave()
    counted.wait_until_all_are_gone()

    counted.check_nothing_is_left()


def is_routing(world: World) -> bool:
    """Tell whether a message is routed by all that is known."""
    model = world.home.ask("status")["embedder"]
    return bool(model["state"] == "ready" and model["percent"] == 100)


def test_many_sessions_leave_no_more_memory_each_time_and_give_most_of_it_back(
    world: World,
) -> None:
    world.start()
    assert world.process is not None
    pid, left = world.process.pid, []
    # The vectors that routing compares with are there once, whoever is in a session.
    wait_for(lambda: is_routing(world), 120)
    for number in range(ROUNDS):
        sessions = [
            Session(world.home.socket, f"r{number}-{each}", world.home.folder)
            for each in range(MANY)
        ]
        for session in sessions:
            session.leave()
        wait_for(lambda: len(world.home.ask("sessions")["sessions"]) == 1)
        left.append(rss_bytes(pid) or 0)

    # Each round of them has 12 MB while it is open. What ended is given back a moment later.
    with contextlib.suppress(AssertionError):
        wait_for(lambda: (rss_bytes(pid) or 0) - left[0] < 12 * MIB)
    left.append(rss_bytes(pid) or 0)
    assert left[-1] - left[0] < 12 * MIB, left
