"""Attacks on starts: of servers side by side in one session, and of the daemon by a client.

Starts of one session run at the same time, and only their commit is alone. A client that finds no
daemon starts one as nobody's child: two forks, a session of its own. The attacks: a start that
never ends, that floods, that asks a person before it is ready or whose trust goes while it is under
way; a client that dies within a start of the daemon, that has a clone's programs on its PATH, or
that ignores the death of children; a server that starts a daemon of its own to leave its tree.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from capd.adapters.platform import process_start_time
from capd_client.mcp_host import McpHost
from whole_daemon import SHIM, Home, pids_with, wait_for

from .escaping import PATIENCE, is_gone
from .test_reach import OBEYING_SERVER
from .test_strangers_words import LISTING_SERVER, tool
from .world import World, text_of

pytestmark = pytest.mark.reliability


@pytest.fixture
def evil_server() -> list[str]:
    """Override: these tests need no server from outside of the repository."""
    return []


def listing(world: World, name: str, how: str) -> Path:
    """Define a server that makes trouble at its start; return the file of its tools."""
    file = world.home.folder / f"{name}.json"
    file.write_text(json.dumps([tool("own", f"Says what {name} has.")]))
    argv = [sys.executable, "-I", "-S", str(LISTING_SERVER), mark(world, name), str(file), how]
    world.home.capability(name, argv)
    return file


def mark(world: World, name: str) -> str:
    return f"{world.home.tag}-{name}."


def processes(world: World, name: str) -> list[int]:
    return [pid for pid in pids_with(mark(world, name)) if not is_gone(pid)]


# Servers side by side


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_starts_that_never_end_leave_nothing_when_their_client_is_gone(
    world: World, end: str
) -> None:
    names = ("one", "two", "three")
    for name in names:
        listing(world, name, "hang")
    world.start()
    editor = world.home.shim("hanging")
    for number, name in enumerate(names):
        arguments = {"action": "enable", "name": name}
        params = {"name": "capability", "arguments": arguments}
        request = {"jsonrpc": "2.0", "id": 100 + number, "method": "tools/call", "params": params}
        editor._write(request)
    # Each has detached one process, which ignores SIGTERM.
    wait_for(lambda: all(len(processes(world, name)) >= 2 for name in names))

    with world.beside_an_honest_session():
        if end == "is killed":
            editor.process.kill()
        editor.leave()

        wait_for(lambda: not any(processes(world, name) for name in names), PATIENCE)


def test_starts_that_flood_stop_neither_their_session_nor_another(world: World) -> None:
    names = [f"flood{number}" for number in range(4)]
    for name in names:
        listing(world, name, "flood")
    world.honest("useful")
    world.start()
    session = world.session("one")

    with world.beside_an_honest_session():
        asked = [session.begin("capability", {"action": "enable", "name": name}) for name in names]
        wait_for(lambda: all(processes(world, name) for name in names))
        enabled = session.call("capability", {"action": "enable", "name": "useful"})
        said = session.said("useful__echo", "hello")

    assert text_of(enabled).startswith("Capability 'useful' is on.")
    assert said.startswith("useful echo ")
    assert not any(session.answers.get(each) for each in asked)
    assert "\x1b" not in world.home.capd("status").stdout


def test_a_question_from_a_start_is_asked_nobody_while_another_server_has_a_call(
    world: World,
) -> None:
    listing(world, "asking", "ask")
    world.home.capability("useful", [sys.executable, "-I", str(OBEYING_SERVER), world.home.tag])
    world.start()
    session = world.session("one", "useful", capabilities={"elicitation": {}})
    begun, ends = (world.home.folder / name for name in ("begun", "ends"))
    waits = f"while not os.path.exists({str(ends)!r}): time.sleep(0.02)"
    source = f"import os, time\nopen({str(begun)!r}, 'w').close()\n{waits}"
    call = session.begin("useful__run", {"x": source})
    wait_for(begun.exists)

    enabled = session.call("capability", {"action": "enable", "name": "asking"})
    own = session.said("asking__own", "after")

    assert text_of(enabled).startswith("Capability 'asking' is on.")
    assert own.endswith("own after")
    ends.touch()
    session.answer(call)
    assert [each for each in session.heard if each.get("method") == "elicitation/create"] == []


def test_a_start_whose_trust_is_revoked_meanwhile_brings_nothing(world: World) -> None:
    config = world.home.folder / "config"
    config.mkdir()
    # What it would do where it runs is looked at: its file is outside of the project.
    (config / "config.toml").write_text('[sandbox]\nproject = "guard"\n')
    world.start()
    project = world.home.folder / "cloned"
    folder = project / ".capd/capabilities/appdb"
    folder.mkdir(parents=True)
    file = world.home.folder / "appdb.json"
    file.write_text(json.dumps([tool("own")]))
    args = ["-I", "-S", str(LISTING_SERVER), mark(world, "appdb"), str(file), "hold"]
    triggers = ["query the app database", "count rows", "list the tables"]
    (folder / "config.toml").write_text(f"triggers = {json.dumps(triggers)}\n")
    (folder / "default.toml").write_text(
        f'[[mcp.servers]]\nname = "appdb"\ncommand = {json.dumps(sys.executable)}\n'
        f"args = {json.dumps(args)}\n"
    )
    session = world.session("one", folder=project)
    trusted = world.home.at_terminal("trust", str(project), typed="y\n")
    assert trusted.returncode == 0, trusted.stdout
    asked = session.begin("capability", {"action": "enable", "name": "appdb"})
    wait_for(lambda: processes(world, "appdb"))

    revoked = world.home.at_terminal("trust", str(project), "--revoke", typed="y\n")
    Path(f"{file}.go").touch()

    assert revoked.returncode == 0, revoked.stdout
    answer = session.answer(asked)
    assert answer["result"].get("isError"), answer
    assert "appdb__own" not in session.tools()
    wait_for(lambda: not processes(world, "appdb"), PATIENCE)


def pid_and_reason(world: World, name: str) -> tuple[int, str]:
    entry = wait_for(lambda: world.server(name) if world.server(name)["pid"] else None)
    return entry["pid"], entry["cwd_reason"]


def wait_for_another(world: World, name: str, pid: int) -> None:
    wait_for(lambda: world.server(name)["pid"] not in {0, pid})


def test_a_server_of_the_user_changes_with_the_trust_in_the_folder_where_it_runs(
    world: World,
) -> None:
    """What it was started with while the folder was trusted may be the clone's own code."""
    home = world.home
    clone, mine = home.folder / "clone", home.folder / "mine"
    clone.mkdir()
    (clone / ".npmrc").write_text("node-options=--require ./x.js\n")
    mine.mkdir()
    shutil.copy(Path(__file__).parent / "honest_server.py", mine / "server.py")
    serve = f"exec {sys.executable} -I -S {mine}/server.py useful echo {home.tag}"
    (mine / "npx").write_text(f"#!/bin/sh\n{serve}\n")
    (mine / "npx").chmod(0o755)
    home.env["PATH"] = f"{mine}:{home.env['PATH']}"
    home.capability("useful", ["npx", "-y", "useful-server"])
    definition = home.folder / "tap/capabilities/useful/default.toml"
    definition.write_text(definition.read_text() + 'scope = "project"\n')
    world.honest("other", scope="project")
    world.start()
    session = world.session("one", "useful", "other", folder=clone)
    untouched = world.pid("other")
    held, reason = pid_and_reason(world, "useful")
    assert ".npmrc" in reason

    for command, is_held in ((("trust",), False), (("trust", "--revoke"), True)):
        done = home.at_terminal(*command, str(clone), typed="y\n")
        assert done.returncode == 0, done.stdout
        wait_for_another(world, "useful", held)
        now, reason = pid_and_reason(world, "useful")

        assert bool(reason) is is_held
        assert session.said("useful__echo", "hello").startswith("useful echo ")
        assert is_gone(held)
        held = now
    assert world.pid("other") == untouched


# The daemon, started by a client


@contextlib.contextmanager
def started_by(
    world: World,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    command: Sequence[str] = (),
) -> Iterator[McpHost]:
    """An editor whose shim starts the daemon; that is ended with the block."""
    own = {key: value for key, value in world.home.env.items() if key != "CAPD_NO_START"}
    editor = McpHost(
        [*command, sys.executable, "-I", "-S", str(SHIM)],
        env={**own, "CAPD_SESSION": "first", **(env or {})},
        cwd=str(cwd or world.home.folder),
    )
    try:
        yield editor
    finally:
        editor.leave()
        if Path(world.home.socket).exists():
            end_daemon(world.home)


def end_daemon(home: Home) -> None:
    pid = home.ask("status")["daemon"]["pid"]
    home.ask("stop")
    wait_for(lambda: process_start_time(pid) is None)


def starters(home: Home) -> list[int]:
    """Return the shims of a home, and what is left of them between a shim and the daemon."""
    found = []
    place = f"CAPD_HOME={home.folder}\0".encode()
    for pid in pids_with(str(SHIM)):
        with contextlib.suppress(OSError):
            if place in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
    return found


@pytest.mark.parametrize("moment", ["at once", "at the lock", "when it serves"])
def test_a_client_that_is_killed_while_it_starts_the_daemon_leaves_that_alone(
    world: World, moment: str
) -> None:
    home = world.home
    world.honest("useful")
    lock = home.folder / "run/start.lock"
    with started_by(world) as editor:
        if moment == "at the lock":
            wait_for(lock.exists)
        elif moment == "when it serves":
            wait_for(Path(home.socket).exists)
        editor.process.kill()
        editor.process.wait()
        # Nothing stays between a client and the daemon, and nobody holds its lock.
        wait_for(lambda: not starters(home), PATIENCE)

    with started_by(world) as second:
        second.initialize("test-editor")
        assert home.ask("enable", session="first", name="useful")["ok"]
        wait_for(lambda: len(starters(home)) == 1)
        assert home.ask("status")["daemon"]["pid"]


def program(file: Path, journal: Path, then: str = "") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {file} >> {journal}\n{then}\n")
    file.chmod(0o755)


def test_nothing_of_the_clone_where_a_client_starts_the_daemon_runs_for_anybody(
    world: World,
) -> None:
    home = world.home
    clone, other, journal = (home.folder / name for name in ("clone", "other", "journal"))
    runtime, mine = home.folder / "runtime", home.folder / "mine"
    other.mkdir()
    honest = f"exec {sys.executable} -I -S {home.folder}/honest.py useful echo {home.tag}"
    shutil.copy(Path(__file__).parent / "honest_server.py", home.folder / "honest.py")
    # Two levels: npm puts the folders above a project's first as well.
    for place in (clone / "node_modules/.bin", clone / "bin", home.folder / "node_modules/.bin"):
        for name in ("greet", "systemctl", "env", "sh", "python3"):
            program(place / name, journal, honest)
    program(mine / "greet", home.folder / "mine-ran", honest)
    (runtime / "systemd").mkdir(parents=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(runtime / "systemd/private"))
    home.capability("useful", ["greet"])
    path = [
        *(clone / "node_modules/.bin", home.folder / "node_modules/.bin", clone / "bin"),
        *(Path("bin"), Path(), mine),
    ]
    env = {
        "PATH": ":".join([*map(str, path), os.environ["PATH"]]),
        "XDG_RUNTIME_DIR": str(runtime),
        "HOME": str(home.folder / "home"),
        "SHELL": "/bin/sh",
    }
    (home.folder / "home").mkdir()

    with started_by(world, env=env, cwd=clone) as editor:
        editor.initialize("test-editor")
        world.session("elsewhere", "useful", folder=other)
        ran = journal.read_text().split() if journal.exists() else []
        world.close()
    listener.close()

    assert ran == []
    assert (home.folder / "mine-ran").exists()


def test_a_client_that_ignores_the_death_of_children_has_a_daemon_that_does_not(
    world: World,
) -> None:
    world.honest("useful")
    deaf = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    command = [sys.executable, "-I", "-c", f"{deaf}; os.execv(sys.argv[1], sys.argv[1:])"]

    with started_by(world, command=command) as editor:
        editor.initialize("test-editor")
        session = world.session("one", "useful")
        os.kill(world.pid("useful"), signal.SIGKILL)
        wait_for(lambda: not world.server("useful")["pid"])
        said = session.said("useful__echo", "again")
        world.close()

    assert said.startswith("useful echo ")


OWN_DAEMON = """
import os, subprocess, sys
os.makedirs({home!r}, mode=0o700)
env = {{"CAPD_HOME": {home!r}, "HOME": {home!r}, "PATH": os.environ["PATH"]}}
shim = subprocess.Popen(
    [sys.executable, "-I", "-S", {shim!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
)
params = {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "clientInfo": {{"name": "x"}}}}
import json
ask = {{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}}
shim.stdin.write(json.dumps(ask).encode() + b"\\n")
shim.stdin.flush()
said = shim.stdout.readline().decode()
import time
while not os.path.exists({home!r} + "/run/capd.sock"):
    time.sleep(0.05)
shim.kill()
shim.wait()
{then}
"""
KILL_GUARD = "os.kill(os.getppid(), 9)"


def of_home(folder: Path) -> list[int]:
    """Return the processes that live in a folder of capd's, by what they have open."""
    found = []
    for each in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if each.name.isdigit() and f"CAPD_HOME={folder}\0".encode() in (
                (each / "environ").read_bytes()
            ):
                found.append(int(each.name))
    return [pid for pid in found if not is_gone(pid)]


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon shows its environment to root alone")
@pytest.mark.parametrize("then", ["", KILL_GUARD], ids=["its guard ends it", "its guard is killed"])
@pytest.mark.parametrize("level", ["guard", "off"])
def test_a_server_that_starts_a_daemon_of_its_own_takes_it_along(
    world: World, then: str, level: str
) -> None:
    config = world.home.folder / "config"
    config.mkdir()
    (config / "config.toml").write_text(f'[sandbox.servers.evil]\nlevel = "{level}"\n')
    argv = [sys.executable, "-I", str(OBEYING_SERVER), world.home.tag]
    world.home.capability("evil", argv)
    world.start()
    session = world.session("one", "evil")
    own = world.home.folder / "own"
    source = OWN_DAEMON.format(home=str(own), shim=str(SHIM), then=then)

    asked = session.begin("evil__run", {"x": source})
    wait_for(lambda: of_home(own))
    if then:
        wait_for(lambda: not world.server("evil")["pid"])
    else:
        session.answer(asked)
        assert of_home(own)
        world.home.ask("disable", session="one", name="evil")

    wait_for(lambda: not of_home(own), PATIENCE)
