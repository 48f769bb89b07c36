"""What a clone brings starts nothing until a person has agreed to exactly that.

Seen from outside, in a trace of every `execve` below the daemon, and from inside, by what anything
of the project that runs writes down.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capd_client.mcp_host import McpHost
from whole_daemon import Home, wait_for

from .hostile_project import WORDS, HostileProject
from .world import World

pytestmark = pytest.mark.reliability

COMMANDS = (
    *("status", "caps", "tools --session s", "doctor", "config show", "trust --json", "servers"),
    *("trust --list", "tap list", "search frobnicators", "discover frobnicators", "why", "check"),
)


class Trace:
    """Every program that the daemon, or anything below it, has started."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def under(self) -> list[str]:
        # With -D the tracer is the child, so that the daemon is the process that was started.
        traced = ["-e", "trace=execve,execveat", "-s", "4096"]
        return ["strace", "-D", "-f", "-qq", *traced, "-o", str(self._file)]

    def started(self, of: Path) -> list[str]:
        """Return the starts that have to do with a project."""
        lines = self._file.read_text(errors="replace").splitlines()
        assert [line for line in lines if "execve(" in line], "nothing was traced"
        return [line for line in lines if str(of) in line.partition("execve")[2] or "db.sh" in line]


@pytest.fixture
def trace(world: World) -> Trace:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    done = subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("no process can be traced here")
    return Trace(world.home.folder / "execve.trace")


@pytest.fixture
def project(world: World, trace: Trace) -> HostileProject:
    config = world.home.folder / "config"
    config.mkdir(exist_ok=True)
    # What it would do where it runs is looked at: its marks are outside of the project.
    (config / "config.toml").write_text('[sandbox]\nproject = "guard"\n')
    made = HostileProject(world.home.folder / "cloned", world.home.tag)
    world.honest("neighbour")
    world.process = world.home.start(under=trace.under)
    world.open_neighbour()
    return made


def enabled(home: Home, name: str = "appdb") -> tuple[bool, str]:
    answer = home.ask("enable", session="s", name=name)
    return answer["ok"], answer["text"]


def typed_in(project: HostileProject, home: Home, command: str) -> subprocess.CompletedProcess[str]:
    """Type a command where somebody would who has just cloned it."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("capd")), *command.split()],
        env=home.env, cwd=project.folder, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_nothing_of_a_clone_runs_before_it_is_trusted(
    world: World, project: HostileProject, trace: Trace
) -> None:
    home = world.home
    editor = home.shim("s", project.folder)
    answers = [enabled(home, name) for name in ("appdb", "deps", "nul", "shell", "pipe-def")]
    home.ask("turn", session="s", text=WORDS)
    editor.call("tool_search", {"query": WORDS})

    said = {command: typed_in(project, home, command) for command in COMMANDS}
    refused = typed_in(project, home, "trust")
    home.ask("reload")

    assert [is_on for is_on, _ in answers] == [False] * 5
    assert f"capd trust {project.folder}" in answers[0][1]
    assert (refused.returncode, "asks a person, on a terminal" in refused.stderr) == (1, True)
    assert {c: d.stderr for c, d in said.items() if "Traceback" in d.stderr} == {}
    assert home.ask("trust_list")["projects"] == []
    assert trace.started(project.folder) == []
    assert project.ran == []
    editor.leave()


def agree(home: Home, project: HostileProject) -> str:
    done = home.at_terminal("trust", str(project.folder), typed="y\n")
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def trusted(world: World, project: HostileProject) -> Iterator[McpHost]:
    """An editor in the project, whose own server was agreed to and has run."""
    # Of the rest nothing can be agreed to, or should be: the one server is what this is about.
    for other in sorted(project.provider.parents[1].iterdir()):
        if other.is_symlink():
            other.unlink()
        elif other.name != "appdb":
            shutil.rmtree(other)
    editor = world.home.shim("s", project.folder)
    shown = agree(world.home, project)
    assert "./bin/db.sh" in shown
    wait_for(lambda: enabled(world.home)[0])
    wait_for(lambda: project.ran)
    yield editor
    editor.leave()


def linked_elsewhere(project: HostileProject) -> None:
    other = project.folder.parent / "another.sh"
    project.script.replace(other)
    project.script.symlink_to(other)


def another_folder(project: HostileProject) -> None:
    """Put another folder in the place of the one that was agreed to, by a link."""
    real = project.folder.parent / "moved"
    shutil.copytree(project.folder, real, symlinks=True)
    shutil.rmtree(project.folder)
    project.folder.symlink_to(real)


CHANGES: dict[str, Callable[[HostileProject], object]] = {
    "argv": lambda p: p.define(args='["--all"]'),
    "argv[0]": lambda p: p.define(command="sh", args='["bin/db.sh"]'),
    "its script by another path": lambda p: p.define(command="./bin/../bin/db.sh"),
    "env": lambda p: p.define(more='env = { NODE_OPTIONS = "--require ./evil.js" }'),
    "env, by PATH": lambda p: p.define(more='env = { PATH = "{{PROJECT}}/bin" }'),
    "cwd, by another scope": lambda p: p.define(more='scope = "session"'),
    "cwd, by a link": another_folder,
    "sandbox": lambda p: p.define(more='sandbox = "off"'),
    "url": lambda p: p.provider.write_text(
        '[[mcp.servers]]\nname = "appdb"\nurl = "http://127.0.0.1:9/mcp"\n'
    ),
    "content of its script": lambda p: p.write_script("another script"),
    "its script, by a link": linked_elsewhere,
    "its script, gone": lambda p: p.script.unlink(),
}


def test_nothing_runs_again_after_anything_that_was_agreed_to_has_changed(
    world: World, project: HostileProject, trace: Trace, trusted: McpHost
) -> None:
    home = world.home
    started: dict[str, list[str]] = {}
    answers: dict[str, tuple[bool, str]] = {}
    for name, change in CHANGES.items():
        restore(project)
        agree(home, project)
        wait_for(lambda: enabled(home)[0])
        home.ask("disable", session="s", name="appdb")
        wait_for(lambda: not [s for s in home.servers() if s["name"] == "appdb"])
        before, ran = trace.started(project.folder), project.ran
        change(project)

        answers[name] = enabled(home)

        home.ask("turn", session="s", text=WORDS)
        assert "appdb__echo" not in str(trusted.tools())
        started[name] = trace.started(project.folder)[len(before) :]
        assert project.ran == ran, name

    assert {name: lines for name, lines in started.items() if lines} == {}
    assert [name for name, (is_on, _) in answers.items() if is_on] == []
    assert set(project.ran) == {"bin-db.sh"}


def restore(project: HostileProject) -> None:
    """Have all be as it was agreed to."""
    if project.folder.is_symlink():
        real = project.folder.readlink()
        project.folder.unlink()
        real.rename(project.folder)
    project.script.unlink(missing_ok=True)
    project.write_script()
    project.define()


def test_what_was_agreed_to_starts_again_when_it_is_as_it_was(
    world: World, project: HostileProject, trusted: McpHost
) -> None:
    home = world.home
    home.ask("disable", session="s", name="appdb")
    wait_for(lambda: not [s for s in home.servers() if s["name"] == "appdb"])
    project.write_script("another script")
    refused = enabled(home)
    runs = len(project.ran)

    restore(project)
    agree(home, project)

    wait_for(lambda: enabled(home)[0])
    assert not refused[0]
    assert len(project.ran) == runs + 1
    assert os.fspath(project.folder) in str(home.ask("trust_list")["projects"])
