"""PYTHON* variables of a project never affect the daemon."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.platform import process_start_time
from capd_client.mcp_host import McpHost
from whole_daemon import SHIM, Home, wait_for

from .world import World

pytestmark = pytest.mark.reliability

SHADOWED = ("secrets", "json", "random", "tempfile", "socket", "capd", "trio", "jsonpath", "numpy")
"""Names that the daemon imports, or a process that it starts."""
TELLS = """import os, sys
with open({journal!r}, "a") as file:
    file.write(f"{{__name__}} {{os.getpid()}} {{sys.argv}}\\n")
raise ImportError("a module of the project")
"""
STARTUP = "open({journal!r}, 'a').write('startup')\n"


def hostile_folder(home: Home) -> tuple[Path, Path]:
    """Return a project whose modules shadow others, and the file that they write to."""
    project, journal = home.folder / "project", home.folder / "journal"
    project.mkdir()
    for name in SHADOWED:
        (project / f"{name}.py").write_text(TELLS.format(journal=str(journal)))
    (project / "startup.py").write_text(STARTUP.format(journal=str(journal)))
    return project, journal


def hostile_environment(project: Path) -> dict[str, str]:
    return {
        "PYTHONPATH": str(project),
        "PYTHONSTARTUP": str(project / "startup.py"),
        "PYTHONINSPECT": "1",
        "PYTHONWARNINGS": "error",
        "PYTHONOPTIMIZE": "2",
        "PYTHONBREAKPOINT": "secrets.x",
    }


def environment_of(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(each.split("=", 1) for each in raw if each)


def use_everything(home: Home, session: Any) -> None:
    """Have the daemon import and start what it has: a server, a long result's path, the model."""
    home.ask("enable", session="user", name="talk")
    session.call("talk__echo", {"text": "hello"})
    home.ask("tokens")
    wait_for(lambda: home.ask("status")["embedder"]["state"] == "ready", 60.0)


@pytest.mark.parametrize("way", ["shim", "command", "module"])
def test_the_modules_of_a_project_are_not_imported_by_the_daemon(world: World, way: str) -> None:
    home = world.home
    project, journal = hostile_folder(home)
    home.plain("talk")
    own = {key: value for key, value in home.env.items() if key != "CAPD_NO_START"}
    env = {**own, **hostile_environment(project), "CAPD_SESSION": "user"}
    if way == "module":
        # Which module is named `capd` is what its person says with this command.
        (project / "capd.py").unlink()
        home.env = {**home.env, "PYTHONPATH": str(project), "PYTHONINSPECT": "1"}
        home.start()
    elif way == "command":
        # The command itself is the user's own Python; what it starts is not.
        command = [sys.executable, "-E", "-P", "-m", "capd_client.entry", "daemon", "start"]
        subprocess.run(command, env=env, cwd=project, check=True, timeout=60)
    shim = McpHost([sys.executable, "-I", "-S", str(SHIM)], env=env, cwd=str(project))
    shim.initialize("test-editor")

    use_everything(home, shim)
    status = home.ask("status")["daemon"]
    # The daemon shows its environment to root alone.
    found = environment_of(status["pid"]) if os.geteuid() == 0 else {}
    imported = journal.read_text() if journal.exists() else ""
    shim.leave()
    home.ask("stop")
    wait_for(lambda: process_start_time(status["pid"]) is None)

    assert imported == ""
    assert {key for key in found if key.startswith("PYTHON")} == set()


def test_a_server_gets_none_of_it_either(world: World) -> None:
    home = world.home
    project, _ = hostile_folder(home)
    # Which module is named `capd` is what its person says with this command.
    (project / "capd.py").unlink()
    home.plain("talk")
    home.env = {**home.env, **hostile_environment(project)}
    home.env.pop("PYTHONINSPECT")
    home.start()
    shim = home.shim("user")

    home.ask("enable", session="user", name="talk")
    (server,) = home.servers()
    found = environment_of(server["pid"])
    shim.leave()

    assert [key for key in found if key.startswith("PYTHON")] == []
