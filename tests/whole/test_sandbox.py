"""What servers see of the machine at each sandbox level."""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd.adapters.servers import sandboxing
from capd_client.mcp_host import McpHost
from whole_daemon import Home, wait_for

LOOKING_SERVER = Path(__file__).parent / "looking_server.py"
TRIGGERS = 'triggers = ["look around here", "what can be seen", "say what is there"]\n'

EVERYTHING = {
    "ssh": "key",
    "notes": "notes",
    "secrets": "SECRET=canary\n",
    "sees_socket": True,
    "connects": True,
    "keeps": "kept",
}
NOTHING = {
    "ssh": "",
    "notes": "",
    "secrets": "",
    "sees_socket": False,
    "connects": False,
    "keeps": "kept",
}

HOLDS = sandboxing.machine()
APART = ", apart" if HOLDS.can_separate else ""
COVERED = (", capd hidden" if HOLDS.can_hide else "") + APART
USUAL = {**EVERYTHING, **({"secrets": "", "sees_socket": False} if HOLDS.can_hide else {})}

needs_bwrap = pytest.mark.skipif(
    not sandboxing.machine().bwrap, reason="this machine has no bubblewrap, or forbids it"
)


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number: int = listening.getsockname()[1]
        yield number


@pytest.fixture
def furnished(home: Home) -> Home:
    """Return the daemon's folder with a home that has secrets, and one of capd's own."""
    own = home.folder / "home"
    (own / ".ssh").mkdir(parents=True)
    (own / ".ssh" / "id").write_text("key")
    (own / "notes").write_text("notes")
    config = home.folder / "config"
    config.mkdir(exist_ok=True)
    secrets = config / "secrets.env"
    secrets.write_text("SECRET=canary\n")
    secrets.chmod(0o600)
    home.env["HOME"] = str(own)
    return home


def argv(home: Home, port: int) -> list[str]:
    # In the project: a script elsewhere may be hidden, as this checkout is where it is below /tmp.
    project = home.folder / "home" / "code" / "shop"
    project.mkdir(parents=True, exist_ok=True)
    script = shutil.copy(LOOKING_SERVER, project)
    return [sys.executable, "-I", str(script), str(home.folder), str(port), home.tag]


def looked(home: Home, editor: McpHost, session: str, name: str) -> tuple[dict[str, Any], str]:
    """Return what a server sees, and its line in the status."""
    wait_for(lambda: home.ask("enable", session=session, name=name)["ok"])
    called = editor.ask("tools/call", {"name": f"{name}__look", "arguments": {}})
    [entry] = [each for each in home.servers() if each["name"] == name]
    return json.loads(called["content"][0]["text"]), entry["sandbox"]


@needs_bwrap
def test_a_projects_server_has_the_project_and_a_network_only_where_that_was_agreed_to(
    furnished: Home, port: int
) -> None:
    project = furnished.folder / "home" / "code" / "shop"
    command, *args = argv(furnished, port)
    for name, more in (("shut", ""), ("open", 'sandbox = "strict+network"\n')):
        folder = project / ".capd" / "capabilities" / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(TRIGGERS)
        (folder / "default.toml").write_text(
            f'[[mcp.servers]]\nname = "{name}"\ncommand = {json.dumps(command)}\n'
            f"args = {json.dumps(args)}\n{more}"
        )
    furnished.start()
    editor = furnished.shim("s", project)
    agreed = furnished.at_terminal("trust", str(project), typed="y\n")

    seen = {name: looked(furnished, editor, "s", name) for name in ("shut", "open")}

    assert seen == {
        "shut": (NOTHING, "strict, no network"),
        "open": ({**NOTHING, "connects": True}, "strict"),
    }
    assert "it may connect anywhere: its sandbox is strict+network" in agreed.stdout
    assert "sandbox strict, no network" in " ".join(furnished.capd("status").stdout.split())
    assert (project / "kept").read_text() == "kept"
    editor.leave()


@needs_bwrap
def test_the_users_servers_see_what_they_see_without_capd_but_for_capd_and_what_is_masked(
    furnished: Home, port: int
) -> None:
    for name in ("plain", "masked", "hidden", "open", "off"):
        # Two names for one definition are one server.
        furnished.capability(name, [*argv(furnished, port), name])
    (furnished.folder / "config" / "config.toml").write_text(
        '[sandbox.servers.masked]\nmasks = ["ssh"]\n[sandbox.servers."hid*"]\nmasks = ["capd"]\n'
        '[sandbox.servers.open]\nmasks = []\n[sandbox.servers.off]\nlevel = "off"\n'
    )
    furnished.start()
    project = furnished.folder / "project"
    project.mkdir()
    editor = furnished.shim("s", project)

    names = ("plain", "masked", "hidden", "open", "off")
    seen = {name: looked(furnished, editor, "s", name) for name in names}

    assert seen == {
        "plain": (USUAL, f"guard{COVERED}"),
        "masked": ({**USUAL, "ssh": ""}, f"guard, without ssh{COVERED}"),
        "hidden": (
            {**EVERYTHING, "secrets": "", "sees_socket": False},
            f"guard, without capd{APART}",
        ),
        "open": (EVERYTHING, f"guard{APART}"),
        "off": (EVERYTHING, "off"),
    }
    editor.leave()
