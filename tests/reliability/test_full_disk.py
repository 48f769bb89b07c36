"""A full disk fails no call; it is reported, and the report ends once there is space."""

import itertools
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from whole_daemon import wait_for

from .world import Session, World, outcome, text_of

pytestmark = pytest.mark.reliability

DISK_MIB = 4
LONG = "x" * 60_000


class Disk:
    """A small file system, and what fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte; what is given back meanwhile is taken again."""
        with self._filler.open("ab", buffering=0) as file:
            for size in (65_536, 4096, 512, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def empty(self) -> None:
        self._filler.unlink()


@pytest.fixture
def disk() -> Iterator[Disk]:
    if os.geteuid() or not shutil.which("mount"):
        pytest.skip("only root mounts a small file system")
    folder = Path(tempfile.mkdtemp(prefix="capdisk"))
    options = f"size={DISK_MIB}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        folder.rmdir()
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield Disk(folder)
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def small(world: World, disk: Disk) -> World:
    """A world whose daemon has all that it writes on the small disk."""
    for name in ("state", "cache"):
        (disk.folder / name).mkdir(mode=0o700)
        (world.home.folder / name).symlink_to(disk.folder / name)
    return world


class Caller(threading.Thread):
    """A session that calls, and calls again."""

    def __init__(self, session: Session, tool: str, is_over: Callable[[], bool]) -> None:
        super().__init__()
        self.wrong: list[str] = []
        self.calls = 0
        self._session, self._tool, self._is_over = session, tool, is_over

    def run(self) -> None:
        for number in itertools.count():
            if self._is_over():
                return
            answer = self._session.call(self._tool, {"x": f"{number}"})
            if outcome(answer) != "result" or not text_of(answer).endswith(f" {number}"):
                self.wrong.append(json.dumps(answer)[:500])
            self.calls += 1


def degraded(world: World) -> list[str]:
    told: list[str] = world.home.ask("status")["daemon"]["degraded"]
    return told


def test_a_full_disk_costs_no_call_is_told_and_is_forgotten_when_there_is_room(
    small: World, disk: Disk
) -> None:
    small.honest("talk")
    # Nothing is known of it yet: it is met while the disk is full.
    small.honest("later")
    small.start()
    config = small.home.folder / "config" / "config.toml"
    over = threading.Event()
    callers = [Caller(small.session(f"s{n}", "talk"), "talk__echo", over.is_set) for n in range(3)]
    for caller in callers:
        caller.start()
    wait_for(lambda: min(caller.calls for caller in callers) > 20)
    disk.fill()
    began = [caller.calls for caller in callers]

    small.session("new", "later")
    config.write_text("[servers]\nlinger = 7\n")
    small.home.ask("reload")
    disk.fill()
    small.enable("s0", "later")
    told = wait_for(lambda: now if len(now := degraded(small)) > 1 else None)
    # It cannot be kept, so it is not made short either.
    long = small.session("long", "talk").said("talk__echo", LONG)
    status = small.home.capd("status")
    wait_for(lambda: all(c.calls > b + 20 for c, b in zip(callers, began, strict=True)))
    disk.empty()
    room_at = time.monotonic()
    wait_for(lambda: not degraded(small))
    # A figure for who runs this with -s; what is asserted is that it heals.
    print(f"healed after {time.monotonic() - room_at:.1f} s")
    over.set()
    for caller in callers:
        caller.join()

    assert [caller.wrong for caller in callers] == [[], [], []]
    assert {
        "nothing is recorded at present",
        "what sessions have cannot be written down at present",
    } <= {line.split(":")[0] for line in told}
    assert long.endswith(f" {LONG}")
    assert (status.returncode, "nothing is recorded at present" in status.stdout) == (4, True)
    ledger = small.home.ask("status")["ledger"]
    assert (ledger["problem"], ledger["dropped"]) == ("", 0)
    # What a next daemon finds has all of it.
    small.close()
    small.kill_daemon()
    small.process = small.home.start()
    small.open_neighbour()
    again = small.session("s0")
    assert {"talk__echo", "later__echo"} <= set(again.tools())
    assert small.home.ask("definitions", server="later")["servers"][0]["tools"] == 1
    assert [each.name for each in (disk.folder / "state/good").iterdir()] in ([], ["config.toml"])


def test_a_daemon_starts_on_a_full_disk_and_serves(small: World, disk: Disk) -> None:
    small.honest("talk")
    disk.fill()

    small.start()
    session = small.session("one", "talk")

    assert session.said("talk__echo", "here") == "talk echo 1 here"
    wait_for(lambda: degraded(small))
    disk.empty()
    wait_for(lambda: not degraded(small))
