"""Processes that servers detach, and what remains when guards or the daemon are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.platform import parent_pid
from whole_daemon import Home, pids_with, wait_for

from .escaping import (
    PATIENCE,
    Terminal,
    escaped,
    escaping,
    is_gone,
    kill,
    parent,
    state,
)
from .world import World, world_of_its_own

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"),
]

FILE_LOCKS = 10
"""RLIMIT_LOCKS."""


@pytest.fixture
def own_world() -> Iterator[World]:
    with world_of_its_own() as made:
        yield made


def watchers(world: World) -> list[int]:
    assert world.process is not None
    daemon = world.process.pid
    return [pid for pid in pids_with("watcher.py") if parent_pid(pid) == daemon]


def gone(world: World, modes: str, processes: int) -> int:
    """Start the world, have its server detach `processes`, and return its guard."""
    escaping(world, modes)
    world.start()
    session = world.session("one", "evil")
    guard = parent(world.pid("evil"))
    session.call("evil__go")
    wait_for(lambda: len(escaped(world)) >= processes or is_gone(guard))
    return guard


HOW = [
    "double_fork",
    "double_fork,setsid,ignore_term",
    "double_fork,clean_environment",
    "double_fork,undumpable",
    "double_fork,clean_environment,lower_limit",
    "ptraced,setsid",
]


@pytest.mark.parametrize("how", HOW)
def test_a_server_that_kills_its_own_guard_leaves_nothing(own_world: World, how: str) -> None:
    guard = gone(own_world, f"{how},kill_guard", 2)

    wait_for(lambda: is_gone(guard) and not escaped(own_world), PATIENCE)


@pytest.mark.parametrize("how", [each for each in HOW if "lower" not in each])
def test_a_guard_that_is_killed_with_the_daemon_leaves_nothing(own_world: World, how: str) -> None:
    guard = gone(own_world, how, 2)
    assert own_world.process is not None

    kill(guard, own_world.process.pid)

    own_world.process.wait()
    own_world.process = None
    wait_for(lambda: not escaped(own_world), PATIENCE)


@pytest.mark.parametrize("guard_is", ["stop_guard", "keep_guard_stopped", "trace_guard"])
def test_a_stopped_guard_saves_nothing_from_the_daemons_death(
    own_world: World, guard_is: str
) -> None:
    guard = gone(own_world, f"double_fork,ignore_term,{guard_is}", 2)
    # The kernel lets only root trace a guard: it shows itself to no other process.
    if guard_is != "trace_guard" or os.getuid() == 0:
        wait_for(lambda: state(guard) in "Tt")

    own_world.kill_daemon()

    wait_for(lambda: is_gone(guard) and not escaped(own_world), PATIENCE)


def test_what_adopts_nothing_of_a_guard_also_stops_with_the_daemon(own_world: World) -> None:
    """The order is: guard killed, daemon stopped by SIGSTOP, then killed."""
    guard = gone(own_world, "double_fork,setsid,ignore_term", 3)
    assert own_world.process is not None
    own_world.process.send_signal(signal.SIGSTOP)
    kill(guard)

    own_world.kill_daemon()

    wait_for(lambda: not escaped(own_world), PATIENCE)


def all_killed(world: World) -> list[int]:
    """Kill the watcher, the guard and the daemon at once; return what is left."""
    guard = gone(world, "double_fork,ignore_term", 2)
    assert world.process is not None
    (watcher,) = wait_for(lambda: watchers(world))
    kill(watcher, guard, world.process.pid)
    world.process.wait()
    world.process = None
    world.close()
    return wait_for(lambda: escaped(world))


def doctor(world: World) -> list[dict[str, Any]]:
    findings = json.loads(world.home.capd("doctor", "--json").stdout)["findings"]
    return [each for each in findings if each["check"] == "processes"]


def test_doctor_names_what_a_daemon_left_and_the_next_one_ends_it(own_world: World) -> None:
    left = all_killed(own_world)
    (found,) = doctor(own_world)

    own_world.process = own_world.home.start()

    assert found["level"] == "warning"
    assert all(str(pid) in found["what"] for pid in left)
    assert "capd daemon restart" in found["fix"]
    wait_for(lambda: not escaped(own_world), PATIENCE)
    assert "leftovers_ended" in own_world.log()
    assert [each["level"] for each in doctor(own_world)] == ["ok"]
    own_world.open_neighbour()


def test_a_daemon_ends_no_process_of_anybody_else(own_world: World, tmp_path: Path) -> None:
    other_folder = Path(tempfile.mkdtemp(prefix="capd"))
    other = World(Home(other_folder), [])
    escaping(other, "double_fork", "theirs")
    other.start()
    session = other.session("one", "theirs")
    session.call("theirs__go")
    theirs = wait_for(lambda: escaped(other, "theirs"))
    limited = subprocess.Popen(["prlimit", "--locks=7:7", "sleep", "600"])
    named = subprocess.Popen(["sleep", "600"], env={"CAPD_INSTANCE": "00000000.1.server"})
    try:
        all_killed(own_world)
        own_world.process = own_world.home.start()
        wait_for(lambda: not escaped(own_world), PATIENCE)

        assert [limited.poll(), named.poll()] == [None, None]
        assert escaped(other, "theirs") == theirs
        other.check_unharmed()
    finally:
        for process in (limited, named):
            process.kill()
            process.wait()
        other.close()
        other.home.close()
        shutil.rmtree(other_folder, ignore_errors=True)
    own_world.open_neighbour()


def test_a_watcher_that_is_killed_is_followed_by_another(own_world: World) -> None:
    guard = gone(own_world, "double_fork,ignore_term", 2)
    assert own_world.process is not None
    (first,) = wait_for(lambda: watchers(own_world))
    kill(first)
    wait_for(lambda: [pid for pid in watchers(own_world) if pid != first])

    kill(guard, own_world.process.pid)

    own_world.process.wait()
    own_world.process = None
    wait_for(lambda: not escaped(own_world), PATIENCE)


def test_stopping_the_daemon_ends_what_had_killed_its_guard(own_world: World) -> None:
    gone(own_world, "double_fork,setsid,ignore_term,clean_environment,kill_guard", 2)
    own_world.close()

    said = own_world.home.capd("daemon", "stop")

    assert said.returncode == 0, said.stderr
    assert not escaped(own_world)
    assert own_world.process is not None
    assert own_world.process.wait(30) == 0
    own_world.process = None


def test_a_server_that_was_adopted_is_no_person_at_the_socket(own_world: World) -> None:
    """The daemon is above it for the moment that it lives on, so that it is refused."""
    guard = gone(own_world, "double_fork", 2)
    assert own_world.process is not None
    daemon, server = own_world.process.pid, own_world.pid("evil")
    (child,) = [pid for pid in escaped(own_world) if parent(pid) == guard and pid != server]
    own_world.process.send_signal(signal.SIGSTOP)
    kill(guard)

    wait_for(lambda: is_gone(guard) or None)
    found = parent(child)

    own_world.process.send_signal(signal.SIGCONT)
    assert found == daemon
    wait_for(lambda: not escaped(own_world), PATIENCE)


def test_processes_say_how_they_are_known(own_world: World) -> None:
    gone(own_world, "double_fork", 2)

    entry = own_world.server("evil")

    assert entry["membership"] == "sweep"
    shown = own_world.home.capd("servers").stdout.splitlines()
    assert "membership" in shown[0]
    assert "sweep" in shown[1]
    assert own_world.home.ask("status")["daemon"]["membership"] == "sweep"


# The terminal


def kill_shell(terminal: Terminal) -> None:
    kill(terminal.shell)
    os.waitpid(terminal.shell, 0)


def close_window(terminal: Terminal) -> None:
    terminal.close_window()


@pytest.fixture
def terminals(own_world: World) -> Iterator[Callable[[str], Terminal]]:
    made: list[Terminal] = []

    def make(line: str) -> Terminal:
        own_world.honest("neighbour")
        made.append(Terminal(own_world, line))
        return made[-1]

    yield make
    for each in made:
        each.end()


@pytest.mark.parametrize("trouble", [close_window, kill_shell])
@pytest.mark.parametrize("line", ["{command}; true", "{command} & wait"], ids=["front", "back"])
def test_a_daemon_ends_with_its_terminal(
    own_world: World,
    terminals: Callable[[str], Terminal],
    line: str,
    trouble: Callable[[Terminal], None],
) -> None:
    escaping(own_world, "double_fork,setsid,ignore_term")
    terminal = terminals(line)
    session = own_world.session("one", "evil")
    session.call("evil__go")

    trouble(terminal)

    wait_for(lambda: is_gone(terminal.daemon) and not escaped(own_world), PATIENCE)
    assert "daemon_stopped" in own_world.log()


def test_a_daemon_of_nohup_serves_on_without_its_terminal(
    own_world: World, terminals: Callable[[str], Terminal]
) -> None:
    terminal = terminals("nohup {command} & wait")

    terminal.close_window()
    os.kill(terminal.daemon, signal.SIGHUP)
    wait_for(lambda: "SIGHUP" in own_world.log() or None)
    # Longer than it takes to look for a terminal.
    deadline = time.monotonic() + 2.5
    wait_for(lambda: time.monotonic() > deadline)

    assert own_world.home.ask("status")["daemon"]["pid"] == terminal.daemon


def test_a_hangup_signal_reloads_while_the_terminal_is_there(
    own_world: World, terminals: Callable[[str], Terminal]
) -> None:
    terminal = terminals("{command}; true")
    own_world.home.capability("later", [sys.executable, "-c", ""])

    os.kill(terminal.daemon, signal.SIGHUP)

    def names() -> list[str]:
        return [each["name"] for each in own_world.home.ask("caps")["capabilities"]]

    wait_for(lambda: "later" in names())
    assert own_world.home.ask("status")["daemon"]["pid"] == terminal.daemon
