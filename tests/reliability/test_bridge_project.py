"""Servers on the far side of a bridge: a real sshd, another user, and no leftovers."""

import contextlib
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_host import HostError, McpHost
from support.bridges import start_with_token
from support.far_hosts import NEEDS_SSH, FarHost, SshBridge, below, cmdline, parent, pids
from whole_daemon import PATIENCE, Home, home_of_its_own, wait_for

pytestmark = [pytest.mark.reliability, *NEEDS_SSH]

TOKEN = "host-token-91c3-which-may-leave"
SERVER = Path(__file__).parents[1] / "whole" / "project_server.py"
CONFIG = """
[servers]
linger = 1
[surface]
mode = "dynamic"
[bridges.far]
capabilities = ["*"]
starts = ["mine/*"]
[bridges.sends]
capabilities = ["*"]
starts = ["mine/*"]
secrets = true
"""


def project_capability(home: Home, host: FarHost, name: str, *more: str, words: str = "") -> None:
    """Define a server that runs where the project is."""
    script = host.home.parent / "project_server.py"
    script.write_bytes(SERVER.read_bytes())
    script.chmod(0o644)
    home.capability(name, ["python3", "-I", str(script), home.tag, *more])
    definition = home.folder / "tap" / "capabilities" / name / "default.toml"
    definition.write_text(f'{definition.read_text()}where = "project"\n{words}\n')


@pytest.fixture
def host() -> Iterator[FarHost]:
    folder = Path(tempfile.mkdtemp(prefix="far"))
    try:
        yield FarHost(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def here(host: FarHost) -> Iterator[Home]:
    with home_of_its_own(is_shipped=False) as home:
        project_capability(home, host, "git", "{{PROJECT}}")
        env = 'env = { API_TOKEN = "{{ENV:API_TOKEN}}" }'
        project_capability(home, host, "token", words=env)
        home.capability("mine", ["python3", "-I", str(SERVER), home.tag, "{{PROJECT}}"])
        start_with_token(home, CONFIG, TOKEN, capabilities=3)
        yield home


@pytest.fixture
def bridge(here: Home, host: FarHost) -> Iterator[SshBridge]:
    made = SshBridge(here, host)
    yield made
    ended(made, host)


def ended(bridge: SshBridge, host: FarHost) -> None:
    """End a bridge; whatever a test did, nothing is left on its far side."""
    if bridge.process.poll() is None:
        bridge.end()
    wait_for(lambda: host.left() == [] and tagged(bridge.home, host) == [])


def tagged(home: Home, host: FarHost) -> list[int]:
    """Return every process over there that a server of this home is, or has started."""
    return [
        pid
        for pid in pids()
        if home.tag.encode() in cmdline(pid) and owner(pid) == host.user.pw_uid
    ]


def owner(pid: int) -> int:
    with contextlib.suppress(OSError):
        return Path("/proc", str(pid)).stat().st_uid
    return -1


def enabled(editor: McpHost, name: str = "git") -> dict[str, Any]:
    editor.initialize("far-editor")
    return dict(editor.call("capability", {"action": "enable", "name": name}))


def said(editor: McpHost, tool: str, text: str = "") -> str:
    return str(editor.call(tool, {"text": text})["content"][0]["text"])


def server_of(home: Home, name: str) -> dict[str, Any]:
    found = [each for each in home.ask("servers")["servers"] if each["name"] == name]
    return dict(found[0]) if found else {}


def test_a_project_server_runs_over_there_with_the_files(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    (host.project / "notes.txt").write_text("of the far side")
    with host.editor("one", host.project) as editor:
        assert not enabled(editor).get("isError")

        facts = json.loads(said(editor, "git__where"))
        assert (facts["uid"], facts["cwd"]) == (host.user.pw_uid, str(host.project))
        assert facts["argv"] == [here.tag, str(host.project)]
        assert said(editor, "git__read", f"{host.project}/notes.txt") == "of the far side"
        root = json.loads(said(editor, "git__root"))["roots"]
        assert root == [{"uri": host.project.as_uri(), "name": "project"}]
        link = editor.call("git__link", {})["content"][0]
        assert link["uri"] == f"{host.project.as_uri()}/notes.txt"
        shown = server_of(here, "git")
        assert (shown["bridge"], shown["pid"], shown["state"]) == ("far", 0, "ready")
        assert "runs over the bridge far" in here.capd("status").stdout


def test_a_project_server_gets_no_variable_of_this_machine(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("variables", host.project) as editor:
        enabled(editor)

        env = json.loads(said(editor, "git__where"))["env"]

    assert env["HOME"] == str(host.home)
    assert not [key for key in env if key.startswith(("CAPD", "SSH_"))]
    assert str(here.folder) not in json.dumps(env)


def test_a_secret_goes_over_no_bridge_that_does_not_say_so(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("secret", host.project) as editor:
        answer = enabled(editor, "token")

        text = str(answer["content"][0]["text"])
        assert answer["isError"]
        assert "secrets = true in [bridges.far] of config.toml" in text
        assert "secrets = true" in server_of(here, "token")["last_error"]
        assert "secrets = true" in here.capd("status").stdout
        assert tagged(here, host) == []


def test_a_secret_goes_over_a_bridge_that_says_so(here: Home, host: FarHost) -> None:
    host.name = "sends"
    bridge = SshBridge(here, host, "--name", "sends")
    try:
        with host.editor("secret", host.project) as editor:
            enabled(editor, "token")

            assert said(editor, "token__token") == TOKEN
            files = [each for each in host.home.rglob("*") if each.is_file()]
            assert [each for each in files if TOKEN.encode() in each.read_bytes()] == []
            assert [pid for pid in tagged(here, host) if TOKEN.encode() in cmdline(pid)] == []
    finally:
        ended(bridge, host)


def test_a_server_of_this_machine_that_names_the_project_is_refused(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("mine", host.project) as editor:
        answer = enabled(editor, "mine")

    assert 'add where = "project" to its definition' in answer["content"][0]["text"]


def test_sessions_of_two_folders_have_two_servers_and_those_of_one_share(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with (
        host.editor("one", host.project) as one,
        host.editor("two", host.project) as two,
        host.editor("three") as three,
    ):
        editors = (one, two, three)
        for each in editors:
            enabled(each)

        found = [json.loads(said(each, "git__where")) for each in editors]

    assert found[0]["pid"] == found[1]["pid"] != found[2]["pid"]
    assert [each["cwd"] for each in found] == [str(host.project), str(host.project), str(host.home)]


def test_a_session_of_this_machine_has_it_here(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("there", host.project) as editor, here.shim("local") as local:
        enabled(editor)
        far = json.loads(said(editor, "git__where"))
        assert here.ask("enable", session="local", name="git")["ok"]

        near = json.loads(said(local, "git__where"))

    assert near["pid"] != far["pid"]
    assert near["uid"] == os.getuid()


def test_a_server_ends_with_its_lease(here: Home, host: FarHost, bridge: SshBridge) -> None:
    with host.editor("lease", host.project) as editor:
        enabled(editor)
        said(editor, "git__leave")
        assert len(tagged(here, host)) >= 2

        editor.call("capability", {"action": "disable", "name": "git"})

        wait_for(lambda: tagged(here, host) == [])
        assert bridge.process.poll() is None


def runner_of(host: FarHost) -> int:
    """Return the process that runs the servers over there."""
    holder = int((host.folder / "pid").read_text())
    return next(pid for pid in below(holder) if parent(pid) == holder)


def victims(home: Home, host: FarHost, bridge: SshBridge) -> dict[str, list[int]]:
    """Return the processes of each part that carries a server."""
    runner = runner_of(host)
    [guard] = [pid for pid in below(runner) if parent(pid) == runner]
    [server] = [pid for pid in below(guard) if b"project_server" in cmdline(pid)]
    holder = int((host.folder / "pid").read_text())
    return {
        "server": [server],
        "guard": [guard],
        "runner": [runner],
        "hold": [holder],
        "sshd": [parent(holder)],
        "ssh": [bridge.tunnel()],
        "bridge": [bridge.process.pid],
        "daemon": [home.processes[0].pid],
        "shim": [pid for pid in host.processes() if cmdline(pid).endswith(b"/capd.pyz\0")],
        "guard and runner": [runner, guard],
        "runner and hold": [holder, runner],
        "daemon and bridge": [home.processes[0].pid, bridge.process.pid],
    }


@pytest.mark.parametrize(
    "part",
    [
        *("server", "guard", "runner", "hold", "sshd", "ssh", "bridge", "daemon", "shim"),
        *("guard and runner", "runner and hold", "daemon and bridge"),
    ],
)
def test_nothing_is_left_over_there_when_a_part_is_killed(
    here: Home, host: FarHost, bridge: SshBridge, part: str
) -> None:
    with host.editor("kill", host.project) as editor:
        enabled(editor)
        said(editor, "git__leave")
        before = tagged(here, host)
        assert len(before) >= 2

        for pid in victims(here, host, bridge)[part]:
            os.kill(pid, signal.SIGKILL)

        # A killed shim is a cut: its session waits for it for half a minute, with what it has.
        patience = PATIENCE if part == "shim" else 10
        wait_for(lambda: not set(before) & set(tagged(here, host)), patience)
        if "hold" in part:
            # Until then nothing over there removes what the bridge has put there.
            wait_for(lambda: "up again" in bridge.output.read_text())


@pytest.mark.parametrize("part", ["server", "guard", "runner", "hold", "sshd", "ssh"])
def test_a_server_is_there_again_after_a_part_was_killed(
    here: Home, host: FarHost, bridge: SshBridge, part: str
) -> None:
    with host.editor("again", host.project) as editor:
        enabled(editor)
        before = json.loads(said(editor, "git__where"))["pid"]

        for pid in victims(here, host, bridge)[part]:
            os.kill(pid, signal.SIGKILL)

        def is_another() -> bool:
            with contextlib.suppress(HostError, ValueError):
                return bool(json.loads(said(editor, "git__where"))["pid"] != before)
            return False

        wait_for(is_another)
        if part == "hold":
            wait_for(lambda: "up again" in bridge.output.read_text())


def test_a_revoked_bridge_takes_its_servers_with_it(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("revoked", host.project) as editor:
        enabled(editor)
        said(editor, "git__leave")

        here.ask("bridge_revoke", name="far")

        wait_for(lambda: tagged(here, host) == [], 10)
        assert bridge.process.wait(60) == 1
