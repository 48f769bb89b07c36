"""A world with servers that say what they are told, and an honest session beside them."""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whole_daemon import Home

from .world import MIB, Session, World

TALKING_SERVER = Path(__file__).parent / "talking_server.py"
HONEST_SECONDS = 2.0
"""For one call of the honest session, on a machine with a core to spare."""
MOST_RSS = 300 * MIB


class TalkingWorld:
    """A daemon, servers that say what they are told, and what they did."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.home = world.home

    def server(self, name: str, **options: Any) -> None:
        """Define a server with the options of `talking_server`."""
        argv = [sys.executable, "-I", "-S", str(TALKING_SERVER), name, str(self._journal(name))]
        self.home.capability(name, [*argv, json.dumps(options), self.home.tag])

    def did(self, name: str) -> list[str]:
        """Return what a server was asked to do, call by call."""
        journal = self._journal(name)
        return journal.read_text().splitlines() if journal.exists() else []

    def _journal(self, name: str) -> Path:
        return self.home.folder / f"{name}.journal"

    @contextlib.contextmanager
    def beside_an_honest_session(self) -> Iterator["Honest"]:
        """Have the honest session call on, and see at the end that nothing cost it much."""
        honest = Honest(self.world)
        honest.thread.start()
        try:
            yield honest
        finally:
            honest.is_over.set()
            honest.thread.join(60)
        assert honest.problem is None, honest.problem
        assert honest.calls
        # Others may have the machine as well.
        load = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        assert max(honest.calls) <= HONEST_SECONDS * load, sorted(honest.calls)[-5:]
        assert self.rss() <= MOST_RSS

    def rss(self) -> int:
        """Return the most bytes that the daemon ever had in memory."""
        assert self.world.process is not None
        status = Path(f"/proc/{self.world.process.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) * 1024


class Honest:
    """Calls of the honest session, one after the other."""

    def __init__(self, world: World) -> None:
        self.calls: list[float] = []
        """How many seconds each took."""
        self.is_over = threading.Event()
        self.problem: Exception | None = None
        self.thread = threading.Thread(target=self._call, args=(world,), daemon=True)

    def _call(self, world: World) -> None:
        try:
            while not self.is_over.is_set() or not self.calls:
                began = time.monotonic()
                world.ask_neighbour()
                self.calls.append(time.monotonic() - began)
                self.is_over.wait(0.02)
        except Exception as error:  # noqa: BLE001 - the test's own thread tells of it
            self.problem = error


@contextlib.contextmanager
def talking_world() -> Iterator[TalkingWorld]:
    """Make a world; it is closed, and unharmed, at its end."""
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder)
    world = World(home, [])
    try:
        yield TalkingWorld(world)
        world.check_unharmed()
        world.close()
        home.close()
    finally:
        world.close()
        for process in home.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def reply(session: Session, rest: str, server: str = "evil") -> tuple[dict[str, Any], bytes]:
    """Have a server's tool answer with `rest`; return what the client gets, and its line."""
    asked = session.begin(f"{server}__reply", {"rest": rest})
    answer = session.answer(asked)
    return answer, session.lines[asked]
