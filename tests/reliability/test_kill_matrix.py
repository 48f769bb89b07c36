"""Who is killed, how, and what the servers have detached by then: nothing is left after 10 s.

    {server, guard, daemon, embedder, shim, session leader}
        x {TERM, KILL, ABRT, STOP then KILL}
        x {double fork, setsid, TERM ignored, guard killed, ptraced child}
        x {sweep, cgroup, namespace}

The cells of one victim that do not share it run side by side under one daemon. Those whose victim
they share (the daemon, the embedder, the terminal) have a daemon for each signal, and five servers
in it. A victim that lives on, as a guard does after TERM, is no end of anything: then the server is
switched off instead.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import SHIM, pids_with, wait_for

from .escaping import (
    PATIENCE,
    Terminal,
    escaped,
    escaping,
    is_gone,
    kill,
    parent,
)
from .user_systemd import UserSystemd, missing
from .world import World, text_of, world_of_its_own

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(sys.platform != "linux", reason="looks for survivors in /proc"),
]

Route = Literal["sweep", "cgroup", "namespace"]
SIGNALS = {
    "TERM": [signal.SIGTERM],
    "KILL": [signal.SIGKILL],
    "ABRT": [signal.SIGABRT],
    "STOPKILL": [signal.SIGSTOP, signal.SIGKILL],
}
LEAVING = "double_fork,setsid,leave_group,clean_environment"
HOW = {
    "fork": "double_fork",
    "setsid": "setsid",
    "noterm": "double_fork,ignore_term",
    "noguard": "double_fork,setsid",
    "traced": "ptraced",
}
CELLS = [(number, how) for number in SIGNALS for how in HOW]


def send(pid: int, name: str) -> None:
    for number in SIGNALS[name]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@dataclass
class Stage:
    """A world, and how its servers' processes are known."""

    world: World
    way: Route
    systemd: UserSystemd | None = None
    terminal: Terminal | None = None
    guards: dict[str, int] = field(default_factory=dict)

    def define(self, name: str, how: str, *, scope: str = "") -> None:
        more = f'scope = "{scope}"\n' if scope else ""
        more += 'sandbox = "strict"\n' if self.way == "namespace" else ""
        escaping(self.world, HOW[how], name, more)

    def begin(self) -> None:
        self.world.honest("neighbour")
        if self.systemd is None:
            self.world.start()
        else:
            self.capd("daemon", "install")
            self.world.open_neighbour()

    def begin_on_terminal(self) -> None:
        self.world.honest("neighbour")
        self.terminal = Terminal(self.world, "{command}; true")

    def capd(self, *arguments: str) -> None:
        assert self.systemd is not None
        done = self.systemd.run(sys.executable, "-P", "-m", "capd_client.entry", *arguments)
        assert done.returncode == 0, done.stderr

    @property
    def daemon(self) -> int:
        return int(self.world.home.ask("status")["daemon"]["pid"])

    def run(self, names: list[str]) -> None:
        """Start these servers, each with a session, and have each detach what it detaches."""
        for name in names:
            assert text_of(self.world.session(name, name).call(f"{name}__go")) == "gone"
        self.note(names)

    def note(self, names: list[str]) -> None:
        servers = {each["name"]: each for each in self.world.home.ask("servers")["servers"]}
        for name in names:
            assert servers[name]["membership"] == self.way
            assert len(escaped(self.world, name)) >= 2
            self.guards[name] = parent(servers[name]["pid"])

    def kill_guards(self, names: list[str]) -> None:
        """Kill the guards of those whose cell says so."""
        kill(*(self.guards[name] for name in names if name.endswith("_noguard")))

    def switch_off(self, names: list[str]) -> None:
        """End servers as their sessions do, all at once."""

        def switched_off(name: str) -> None:
            self.world.home.ask("disable", session=name, name=name)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(switched_off, names))

    def left(self, names: list[str]) -> list[int]:
        """Return what is there of some servers, their guards included."""
        # Of this start: the daemon that comes next may start the honest one again.
        guards = [self.guards[name] for name in names if not is_gone(self.guards[name])]
        return [*(pid for name in names for pid in escaped(self.world, name)), *guards]

    def wait_until_nothing_is_left(self, names: list[str]) -> None:
        wait_for(lambda: not self.left(names), PATIENCE)


@pytest.fixture(params=["sweep", "cgroup", "namespace"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    way: Route = request.param
    if way == "cgroup" and missing():
        pytest.skip(f"systemd --user: {missing()}")
    if way == "namespace":
        from capd.adapters.servers import sandboxing

        if not sandboxing.machine().bwrap:
            pytest.skip("no bubblewrap, or it may make no namespaces")
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(world_of_its_own())
        made = Stage(world, way)
        if way == "cgroup":
            # One that dies again and again, as here, is not to wait for its next start.
            made.systemd = UserSystemd(world.home.folder, world.home.env)
            stack.callback(made.systemd.close)
        yield made
        if made.terminal is not None:
            made.terminal.end()


def name_of(number: str, how: str, victim: str = "") -> str:
    return "_".join(filter(None, (victim, number.lower(), how)))


def test_servers_and_guards(stage: Stage) -> None:
    cells = {
        name_of(number, how, victim): (victim, number)
        for victim in ("server", "guard")
        for number, how in CELLS
    }
    for name in cells:
        stage.define(name, name.rpartition("_")[2])
    stage.begin()
    stage.run(list(cells))
    pids = {each["name"]: each["pid"] for each in stage.world.home.ask("servers")["servers"]}

    stage.kill_guards(list(cells))
    for name, (victim, number) in cells.items():
        send(pids[name] if victim == "server" else stage.guards[name], number)
    # What outlives its signal, or is started anew for its session, ends in good order.
    stage.switch_off(list(cells))

    stage.wait_until_nothing_is_left(list(cells))
    stage.world.ask_neighbour()


def test_shims(stage: Stage) -> None:
    names = {name_of(number, how): number for number, how in CELLS}
    for name in names:
        stage.define(name, name.rpartition("_")[2], scope="session")
    stage.begin()
    shim = [sys.executable, "-I", "-S", str(SHIM), stage.world.home.socket]
    editors, shims = [], {}
    for name in names:
        # The shell is the editor: it ends with its shim, which is what the daemon looks at.
        editor = McpHost(
            ["sh", "-c", '"$@"; :', "sh", *shim],
            env={**stage.world.home.env, "CAPD_SESSION": name, "CAPD_CLIENT": "test-editor"},
            cwd=str(stage.world.home.folder),
        )
        editor.initialize("test-editor")
        editors.append(editor)
        assert stage.world.enable(name, name)["ok"]
        editor.call(f"{name}__go", {})
        shims[name] = next(
            pid for pid in pids_with(stage.world.home.socket) if parent(pid) == editor.process.pid
        )
    stage.note(list(names))

    stage.kill_guards(list(names))
    for name, number in names.items():
        send(shims[name], number)

    stage.wait_until_nothing_is_left(list(names))
    assert all(is_gone(pid) for pid in shims.values())
    stage.world.ask_neighbour()
    for editor in editors:
        editor.leave()


def five_servers(stage: Stage) -> list[str]:
    names = [name_of("x", how) for how in HOW]
    for name, how in zip(names, HOW, strict=True):
        stage.define(name, how)
    return names


@pytest.mark.parametrize("number", SIGNALS)
def test_daemons(stage: Stage, number: str) -> None:
    names = five_servers(stage)
    stage.begin()
    stage.run(names)
    daemon = stage.daemon
    # Held still, so that it cannot end what has just lost its guard.
    if number != "TERM":
        os.kill(daemon, signal.SIGSTOP)
    stage.kill_guards(names)

    send(daemon, number)
    if number == "ABRT":
        os.kill(daemon, signal.SIGCONT)

    if stage.world.process is not None:
        stage.world.process.wait(PATIENCE)
        stage.world.process = None
    wait_for(lambda: is_gone(daemon), PATIENCE)
    stage.wait_until_nothing_is_left(names)


def test_embedders(stage: Stage) -> None:
    others = [name_of("x", how) for how in HOW if how != "noguard"]
    unguarded = {name_of(number, "noguard"): number for number in SIGNALS}
    names = [*others, *unguarded]
    for name in names:
        stage.define(name, name.rpartition("_")[2])
    stage.begin()
    stage.run(names)
    for name, number in unguarded.items():
        model = wait_for(lambda: (m := stage.world.home.ask("status")["embedder"])["pid"] and m)
        stage.kill_guards([name])

        send(model["pid"], number)

        wait_for(partial(is_gone, model["pid"]), PATIENCE)
        stage.wait_until_nothing_is_left([name])
    stage.world.ask_neighbour()
    stage.switch_off(others)
    stage.wait_until_nothing_is_left(others)


def test_a_stopped_embedder_does_not_outlive_the_daemon(stage: Stage) -> None:
    stage.begin()
    model = wait_for(lambda: (m := stage.world.home.ask("status")["embedder"])["pid"] and m)
    daemon = stage.daemon
    os.kill(model["pid"], signal.SIGSTOP)

    kill(daemon)

    if stage.world.process is not None:
        stage.world.process.wait(PATIENCE)
        stage.world.process = None
    wait_for(lambda: is_gone(model["pid"]), PATIENCE)


@pytest.mark.parametrize("stage", ["sweep", "namespace"], indirect=True)
@pytest.mark.parametrize("number", SIGNALS)
def test_session_leaders(stage: Stage, number: str) -> None:
    """The shell of the terminal that a daemon was started in; systemd's daemon has none."""
    names = five_servers(stage)
    stage.begin_on_terminal()
    stage.run(names)
    assert stage.terminal is not None
    stage.kill_guards(names)

    send(stage.terminal.shell, number)
    if number == "TERM":
        # A shell heeds it when its foreground job has ended.
        stage.terminal.close_window()

    wait_for(lambda: stage.terminal is not None and is_gone(stage.terminal.daemon), 2 * PATIENCE)
    stage.wait_until_nothing_is_left(names)


@pytest.fixture
def service() -> Iterator[Stage]:
    """A daemon of systemd's with one server, `evil`, that has detached and moved processes."""
    if missing():
        pytest.skip(f"systemd --user: {missing()}")
    with world_of_its_own() as world:
        stage = Stage(world, "cgroup")
        stage.systemd = UserSystemd(world.home.folder, world.home.env)
        try:
            yield stage
        finally:
            stage.systemd.close()


def group(pid: int) -> str:
    """Return the control group of a process, below its unit's."""
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(each for each in lines if each.startswith("0::")).rpartition(".service")[2]


def test_each_server_has_a_group_and_the_daemon_is_in_none_of_them(service: Stage) -> None:
    service.define("evil", "fork")
    service.begin()
    service.run(["evil"])

    groups = {group(pid) for pid in [*escaped(service.world), service.guards["evil"]]}

    (own,) = groups
    assert own.startswith("/servers/")
    assert group(service.daemon) == "/daemon"
    assert group(service.world.pid("neighbour")) not in {own, "/daemon"}


def test_what_moved_to_another_group_ends_with_its_guard(service: Stage) -> None:
    escaping(service.world, LEAVING)
    service.begin()
    service.run(["evil"])
    wait_for(lambda: "/daemon" in map(group, escaped(service.world)))

    kill(service.guards["evil"])

    service.wait_until_nothing_is_left(["evil"])
    service.world.ask_neighbour()
