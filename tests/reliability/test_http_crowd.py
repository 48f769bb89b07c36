"""The HTTP front under a crowd without tokens, and used by a server that stole the token."""

import contextlib
import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from capd.adapters.clients.http_front import tcp_peers
from whole_daemon import wait_for

from .world import World, world_of_its_own

pytestmark = pytest.mark.reliability

THIEVING_SERVER = Path(__file__).parent / "thieving_server.py"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "editor", "version": "1"},
    },
}
IDLE = 600
"""More than there were places for all together."""

judges = pytest.mark.skipif(
    not tcp_peers.can_tell(), reason="this system does not tell whose a connection is"
)


class Front:
    """The world's HTTP front, and an honest client's way to it."""

    def __init__(self, world: World) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self._token = world.home.folder / "state" / "http.token"
        config = world.home.folder / "config"
        config.mkdir(exist_ok=True)
        # Where the machine can hide the token, only a server without a sandbox reads it.
        (config / "config.toml").write_text(
            f'[listen_http]\nenabled = true\nport = {self.port}\n[sandbox]\nlevel = "off"\n'
        )
        argv = [sys.executable, "-I", str(THIEVING_SERVER), str(self.port), str(self._token)]
        world.home.capability("thief", [*argv, world.home.tag])
        self._stack = contextlib.ExitStack()

    def connect(self) -> http.client.HTTPConnection:
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        self._stack.callback(made.close)
        return made

    def status(self, connection: http.client.HTTPConnection, token: str = "") -> int:
        """Ask for a session, and return how that was answered."""
        headers = {
            "Authorization": f"Bearer {token or self._token.read_text().strip()}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        connection.request("POST", "/mcp", json.dumps(INITIALIZE), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def crowd(self, count: int) -> None:
        """Connect so many times, and say nothing."""
        for _ in range(count):
            self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def hostile() -> Iterator[World]:
    with world_of_its_own() as made:
        yield made


@pytest.fixture
def front(hostile: World) -> Iterator[Front]:
    made = Front(hostile)
    yield made
    made.close()


def test_idle_connections_keep_nobody_out(hostile: World, front: Front) -> None:
    hostile.start()
    early = front.connect()
    before = front.status(early)
    front.crowd(IDLE)

    during = [front.status(front.connect()) for _ in range(5)]

    # Nor does one that was let in lose its connection.
    assert (before, during, front.status(early)) == (200, [200] * 5, 200)
    assert early.sock is not None


def test_who_shows_no_token_is_soon_gone(hostile: World, front: Front) -> None:
    hostile.start()
    with socket.create_connection(("127.0.0.1", front.port)) as silent:
        silent.settimeout(60)

        # Its head never ends.
        silent.sendall(b"POST /mcp HTTP/1.1\r\n")

        assert silent.recv(1) == b""


def test_a_server_that_is_idle_in_hundreds_keeps_nobody_out(hostile: World, front: Front) -> None:
    hostile.start()
    session = hostile.session("thief", "thief")
    session.said("thief__steal", f"idle {IDLE}")

    found = front.status(front.connect())

    assert found == 200


@judges
@pytest.mark.parametrize("how", ["plain", "orphaned", "parked"])
def test_a_server_that_has_read_the_token_is_not_let_in(
    hostile: World, front: Front, how: str
) -> None:
    hostile.start()
    session = hostile.session("thief", "thief")

    said = session.said("thief__steal", how)

    assert said == "403"
    assert front.status(front.connect()) == 200
    assert "http_peer_refused" in hostile.log()


@judges
def test_a_server_with_the_token_in_hundreds_keeps_nobody_out(hostile: World, front: Front) -> None:
    hostile.start()
    session = hostile.session("thief", "thief")
    begun = session.begin("thief__steal", {"x": "crowd 300"})

    found = [front.status(front.connect()) for _ in range(5)]

    said = json.loads(session.answer(begun)["result"]["content"][0]["text"])
    assert found == [200] * 5
    assert set(said) <= {"403", "closed", "ConnectionResetError"}


@judges
def test_a_server_that_may_connect_may_over_http(hostile: World, front: Front) -> None:
    config = hostile.home.folder / "config" / "config.toml"
    config.write_text(config.read_text() + '[servers]\nmay_connect = ["thi*"]\n')
    hostile.start()
    session = hostile.session("thief", "thief")

    said = wait_for(lambda: session.said("thief__steal", "plain"))

    assert said == "200"
