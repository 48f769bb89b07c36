"""The runner and its guards over there: what a server gets, what bounds both sides, what is left.

The test is the daemon. No bridge and no other user are needed.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.bridge.runner import HEAD, MOST_ORDER_BYTES, MOST_UNREAD_BYTES
from support.far_hosts import below, parent
from whole_daemon import PATIENCE, pids_with, wait_for

RUN = "import sys; from pathlib import Path; from capd_client.bridge import runner\n"
RUN += "runner.run(Path(sys.argv[1]))"
CHUNK = 65536
WITHIN = 10
"""Seconds within which nothing of a server is left, whatever is killed (docs/bridges.md)."""
ORPHAN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
print("left", flush=True)
time.sleep(3600)
"""


class End:
    """A connection of the runner, as the daemon sees it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.connection.settimeout(PATIENCE)
        self._file = connection.makefile("rb")
        self.hello: dict[str, Any] = json.loads(self._file.readline())
        connection.sendall(b'{"capd": "welcome", "protocol": 1}\n')

    def start(self, *argv: str, **members: Any) -> None:
        order = {"argv": argv, "env": {}, "cwd": "/", **members}
        self.connection.sendall(json.dumps(order).encode() + b"\n")

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        self.connection.sendall(HEAD.pack(kind, len(payload)) + payload)

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the guard's frames until it closes."""
        while len(head := self._file.read(HEAD.size)) == HEAD.size:
            kind, size = HEAD.unpack(head)
            yield kind, self._file.read(size)

    def until(self, wanted: bytes) -> tuple[bytes, bytes]:
        """Return the payload of the next frame of a kind, and the output before it."""
        output = b""
        for kind, payload in self.frames():
            if kind == wanted:
                return payload, output
            output += payload if kind == b"o" else b""
        raise AssertionError(f"no {wanted!r} came")

    def close(self) -> None:
        self._file.close()
        self.connection.close()


class Place:
    """The folder of a bridge with a runner, and the daemon's end of the socket."""

    def __init__(self, folder: Path) -> None:
        self.tag = f"capd-test-{uuid.uuid4().hex}"
        (folder / "credential").write_text("of-the-bridge")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(PATIENCE)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen(8)
        self._ends: list[End] = []
        env = {"PATH": ":/usr/bin::/bin", "HOME": str(folder), "OF_THE_SHELL": "secret"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(folder)],
            env={**env, "PYTHONPATH": os.pathsep.join(sys.path), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
        )

    def next(self) -> End:
        """Return the connection that the runner has opened for the next server."""
        end = End(self._listener.accept()[0])
        self._ends.append(end)
        return end

    def started(self, program: str, *words: str, **members: Any) -> End:
        """Start a Python program with the tag in its command line."""
        end = self.next()
        end.start(sys.executable, "-c", program, self.tag, *words, **members)
        assert next(end.frames()) == (b"s", b"")
        return end

    def close(self) -> None:
        self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        for each in self._ends:
            each.close()
        self._listener.close()
        for pid in pids_with(self.tag):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="far") as folder:
        made = Place(Path(folder))
        try:
            yield made
        finally:
            made.close()


def test_a_runner_shows_the_credential_and_asks_for_its_role(place: Place) -> None:
    hello = place.next().hello

    assert (hello["role"], hello["credential"]) == ("runner", "of-the-bridge")


def test_a_server_gets_known_variables_and_those_of_its_order(place: Place) -> None:
    end = place.started("import json, os; print(json.dumps(dict(os.environ)))", env={"MODE": "ro"})

    env = json.loads(end.until(b"x")[1])

    folders = env.pop("PATH").split(":")
    assert "" not in folders
    assert folders[:2] == ["/usr/bin", "/bin"]
    assert f"{env['HOME']}/.local/bin" in folders
    assert {"HOME": env["HOME"], "LC_ALL": "C.UTF-8", "MODE": "ro"} == env


def test_a_server_has_no_descriptor_but_its_own_three(place: Place) -> None:
    end = place.started("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")

    # The fourth is that of the list itself.
    assert json.loads(end.until(b"x")[1]) == [0, 1, 2, 3]


def test_all_that_a_server_has_said_comes_before_its_end(place: Place) -> None:
    end = place.started("import sys; sys.stdout.write('x' * 1_000_000); sys.exit(3)")

    code, output = end.until(b"x")

    assert (code, len(output)) == (b"3", 1_000_000)


def test_what_is_written_to_a_server_is_read_in_full_and_its_end_is_seen(place: Place) -> None:
    end = place.started("import sys; print(len(sys.stdin.read()))")

    for _ in range(40):
        end.send(b"i", b"x" * CHUNK)
    end.send(b"c")

    assert end.until(b"x")[1] == b"%d\n" % (40 * CHUNK)


def test_a_server_is_asked_to_end_before_it_is_killed(place: Place) -> None:
    program = "import signal, sys, time\n"
    program += "signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n"
    end = place.started(f"{program}print('ready', flush=True)\ntime.sleep(3600)")
    end.until(b"o")

    end.send(b"t")

    assert end.until(b"x")[0] == b"5"


def test_a_folder_that_is_not_there_is_told(place: Place) -> None:
    end = place.next()

    end.start(sys.executable, "-c", "", cwd="/no/such/folder")

    assert list(end.frames()) == [(b"f", b"there is no folder /no/such/folder")]


def test_an_order_without_an_end_is_given_up_at_its_bound(place: Place) -> None:
    end = place.next()

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        end.connection.sendall(b"x" * (MOST_ORDER_BYTES + 2))

    assert end.until(b"f")[0] == b"no line"
    assert place.started("print(1)").until(b"x")[1] == b"1\n"


@pytest.mark.parametrize("order", [b"[]\n", b"{}\n", b'{"argv": 1}\n', b"null\n", b"\xff\n"])
def test_an_order_that_is_none_starts_nothing(place: Place, order: bytes) -> None:
    end = place.next()

    end.connection.sendall(order)

    assert [kind for kind, _ in end.frames()] == [b"f"]
    assert place.started("print(1)").until(b"x")[1] == b"1\n"


@pytest.mark.parametrize(
    "sent", [HEAD.pack(b"i", 65537), HEAD.pack(b"?", 0), b"GET / HTTP/1.1\r\n"]
)
def test_what_breaks_the_frames_ends_the_server(place: Place, sent: bytes) -> None:
    end = place.started("import time; time.sleep(3600)")

    end.connection.sendall(sent)

    end.until(b"g")
    assert pids_with(place.tag) == []


def test_a_server_that_reads_nothing_is_ended_at_the_bound(place: Place) -> None:
    end = place.started("import time; time.sleep(3600)")

    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(MOST_UNREAD_BYTES // CHUNK + 4):
            end.send(b"i", b"x" * CHUNK)

    wait_for(lambda: pids_with(place.tag) == [])
    assert place.process.poll() is None


@pytest.mark.parametrize("way", ["k", "close"])
def test_nothing_is_left_when_the_daemon_ends_it(place: Place, way: str) -> None:
    end = place.started(ORPHAN)
    end.until(b"o")

    if way == "k":
        end.send(b"k")
        end.until(b"g")
    else:
        end.close()

    wait_for(lambda: pids_with(place.tag) == [])


def test_a_server_that_ends_leaves_nothing(place: Place) -> None:
    orphan = "import os, sys, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3600)\n"
    end = place.started(f"{orphan}print('left', flush=True)")

    end.until(b"g")

    assert pids_with(place.tag) == []


def test_a_guard_that_is_killed_leaves_nothing(place: Place) -> None:
    end = place.started(ORPHAN)
    end.until(b"o")
    [guard] = [pid for pid in below(place.process.pid) if parent(pid) == place.process.pid]

    # Meanwhile the runner waits for a welcome on its next connection, and none comes.
    os.kill(guard, signal.SIGKILL)

    wait_for(lambda: pids_with(place.tag) == [], WITHIN)
    assert place.process.poll() is None


@pytest.mark.parametrize("way", ["killed", "its input ends"])
def test_guards_end_with_their_runner(place: Place, way: str) -> None:
    end = place.started(ORPHAN)
    end.until(b"o")

    if way == "killed":
        place.process.kill()
    else:
        assert place.process.stdin is not None
        place.process.stdin.close()

    wait_for(lambda: pids_with(place.tag) == [], WITHIN)


def test_a_server_ends_also_where_its_guard_and_its_runner_are_killed_at_once(place: Place) -> None:
    end = place.started("import time\nprint('runs', flush=True)\ntime.sleep(3600)")
    end.until(b"o")
    [guard] = [pid for pid in below(place.process.pid) if parent(pid) == place.process.pid]

    place.process.send_signal(signal.SIGSTOP)
    os.kill(guard, signal.SIGKILL)
    place.process.kill()

    wait_for(lambda: pids_with(place.tag) == [])


def test_servers_of_one_runner_have_a_guard_each(place: Place) -> None:
    one = place.started("input()\nprint('one')")
    two = place.started("import time; time.sleep(3600)")

    two.close()
    one.send(b"i", b"go\n")

    assert one.until(b"x") == (b"0", b"one\n")
