"""A bridge over a real sshd: sessions, lost connections, both ends' exits, no leftovers."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import DaemonDownError
from capd_client.mcp_host import HostError, McpHost
from support.bridges import Far, bridged_capability, start_with_token
from support.far_hosts import NEEDS_SSH, SSHD, FarHost, SshBridge, below, memory_has
from whole_daemon import Home, home_of_its_own, wait_for

TOKEN = "host-token-5c1d-which-stays-here"

pytestmark = [pytest.mark.reliability, *NEEDS_SSH]


@pytest.fixture
def host() -> Iterator[FarHost]:
    folder = Path(tempfile.mkdtemp(prefix="far"))
    try:
        yield FarHost(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def here() -> Iterator[Home]:
    with home_of_its_own(is_shipped=False) as home:
        journal = home.folder / "journal"
        for name in ("shared", "private"):
            bridged_capability(home, name, journal, sys.executable)
        start_with_token(
            home,
            '[surface]\nmode = "dynamic"\n[bridges.far]\ncapabilities = ["shared"]\n',
            TOKEN,
            capabilities=2,
        )
        yield home


@pytest.fixture
def bridge(here: Home, host: FarHost) -> Iterator[SshBridge]:
    made = SshBridge(here, host)
    yield made
    if made.process.poll() is None:
        made.end()
    # Whatever a test did, nothing is left on either side.
    wait_for(lambda: host.left() == [])
    with contextlib.suppress(DaemonDownError):
        assert here.ask("bridges")["bridges"] == []


def session_of(home: Home, key: str) -> dict[str, Any]:
    found = [each for each in home.ask("sessions")["sessions"] if each["key"] == key]
    return dict(found[0]) if found else {}


def enabled(editor: McpHost) -> None:
    editor.initialize("far-editor")
    answer = editor.call("capability", {"action": "enable", "name": "shared"})
    assert not answer.get("isError"), answer


def echoed(editor: McpHost, text: str) -> str:
    return str(editor.call("shared__echo", {"text": text})["content"][0]["text"])


def test_an_editor_over_there_uses_a_server_here_and_its_token_stays_here(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("one") as editor:
        enabled(editor)

        assert "hello" in echoed(editor, "hello")
        with pytest.raises(HostError):
            editor.call("private__echo", {"text": "x"})
        session = session_of(here, "bridge:far:one")
        assert (session["bridge"], session["far_project"]) == ("far", str(host.home))
        files = [each for each in host.home.rglob("*") if each.is_file()]
        assert [each.name for each in files if TOKEN.encode() in each.read_bytes()] == []
        there = host.processes()
        assert len(there) >= 2
        searched = [pid for pid in there if os.access(f"/proc/{pid}/mem", os.R_OK)]
        assert [pid for pid in searched if memory_has(pid, TOKEN.encode())] == []


def test_the_far_side_gets_no_control_role(host: FarHost, bridge: SshBridge) -> None:
    credential = (host.folder / "credential").read_text()

    with Far(str(host.folder / "socket")) as far:
        answer = far.hello(role="control", credential=credential)

        assert answer["code"] == "bridge_refused"


def test_a_session_is_there_again_after_its_connection_was_cut(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("cut") as editor:
        enabled(editor)
        before = echoed(editor, "x")
        first = bridge.tunnel()

        os.kill(first, signal.SIGKILL)
        wait_for(lambda: bridge.tunnel() not in {0, first})
        wait_for(lambda: session_of(here, "bridge:far:cut").get("connected"))

        # The same process of the server: the session was kept, with what it holds.
        assert echoed(editor, "x") == before


def test_a_network_that_swallows_everything_is_noticed(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("hung") as editor:
        enabled(editor)
        first = bridge.tunnel()
        proxies = below(first)
        assert proxies

        for pid in proxies:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: bridge.tunnel() not in {0, first})
        wait_for(lambda: "x" in echoed(editor, "x"))
        for pid in proxies:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_end_here_leaves_nothing_over_there(
    here: Home, host: FarHost, bridge: SshBridge, number: signal.Signals
) -> None:
    assert host.left() != []

    assert bridge.end(number) == 0

    assert host.left() == []
    assert here.ask("bridges")["bridges"] == []


def test_a_killed_bridge_leaves_nothing_over_there(host: FarHost, bridge: SshBridge) -> None:
    bridge.end(signal.SIGKILL)

    wait_for(lambda: host.left() == [])


def test_an_end_over_there_ends_the_bridge_here(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    holder = int(wait_for((host.folder / "pid").read_text))

    os.kill(holder, signal.SIGTERM)

    assert bridge.process.wait(60) == 1
    assert "it was ended on far" in bridge.output.read_text()
    assert here.ask("bridges")["bridges"] == []


def test_a_revoked_bridge_ends_on_both_sides(here: Home, host: FarHost, bridge: SshBridge) -> None:
    here.ask("bridge_revoke", name="far")

    assert bridge.process.wait(60) == 1
    assert "was revoked" in bridge.output.read_text()
    assert host.left() == []


def test_a_bridge_is_there_again_after_its_daemon_was_killed(
    here: Home, host: FarHost, bridge: SshBridge
) -> None:
    with host.editor("daemon") as editor:
        enabled(editor)
        here.processes[0].kill()
        here.processes[0].wait()

        here.start()

        wait_for(lambda: session_of(here, "bridge:far:daemon").get("connected"))
        assert "again" in echoed(editor, "again")


def test_what_a_lost_bridge_has_left_is_removed_by_the_command(here: Home, host: FarHost) -> None:
    bridge = SshBridge(here, host)
    # The far side dies without a word, and this side in the same moment.
    bridge.process.send_signal(signal.SIGSTOP)
    os.kill(int((host.folder / "pid").read_text()), signal.SIGKILL)
    bridge.process.kill()
    bridge.process.wait()
    assert (host.folder / "capd.pyz").exists()

    done = here.capd("bridge", "ssh", "far", "-F", str(host.config), "--remove")

    assert done.stdout == "Nothing of the bridge far is left on far.\n"
    wait_for(lambda: host.left() == [])


def test_an_entry_for_claude_code_lasts_as_long_as_the_bridge(here: Home, host: FarHost) -> None:
    config = host.home / ".claude.json"
    before = {"theme": "dark", "mcpServers": {"other": {"command": "x"}}}
    config.write_text(json.dumps(before))
    os.chown(config, host.user.pw_uid, host.user.pw_gid)

    bridge = SshBridge(here, host, "--install", "claude-code")
    during = json.loads(config.read_text())
    bridge.end()

    assert during["mcpServers"]["capd"]["args"] == [str(host.folder / "capd.pyz")]
    assert during["mcpServers"]["other"] == {"command": "x"}
    assert json.loads(config.read_text()) == before


def test_a_far_side_gets_no_variable_of_this_machine(here: Home, host: FarHost) -> None:
    # ssh puts variables into the path of a forwarded socket, which it tells the other side.
    there = host.home / "value-of-here"
    there.mkdir()
    there.chmod(0o777)
    said = json.dumps({"folder": f"{host.home}/${{LEAKED}}", "python": "python3"})
    host.obey(
        'case "$SSH_ORIGINAL_COMMAND" in\n'
        f"*hold*) ls {there} >{host.home}/found ;;\n"
        f"*) cat >/dev/null; echo 'capd-bridge:{said}' ;;\n"
        "esac"
    )
    here.env["LEAKED"] = there.name

    done = here.capd("bridge", "ssh", "far", "-F", str(host.config))

    assert list(there.iterdir()) == []
    assert not (host.home / "found").exists()
    assert done.returncode == 1
    assert "far names no folder of a bridge" in done.stderr


def test_a_configuration_of_ssh_that_forwards_more_does_so_for_no_bridge(
    here: Home, host: FarHost
) -> None:
    ran = host.home.parent / "ran"
    with host.config.open("a") as config:
        config.write(f" ForwardAgent yes\n PermitLocalCommand yes\n LocalCommand touch {ran}\n")
    agent = here.env["SSH_AUTH_SOCK"] = str(here.folder / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL) as process:
        try:
            wait_for(Path(agent).exists)
            bridge = SshBridge(here, host)
            holder = wait_for((host.folder / "pid").read_text)

            environment = Path("/proc", holder, "environ").read_bytes()

            assert b"SSH_CONNECTION=" in environment
            assert b"SSH_AUTH_SOCK=" not in environment
            assert not ran.exists()
            assert bridge.end() == 0
        finally:
            process.terminate()


def test_a_far_side_that_says_too_much_once_it_is_held_ends_the_bridge(
    here: Home, host: FarHost
) -> None:
    folder = f"{host.home}/.local/share/capd-bridge/far"
    said = json.dumps({"folder": folder, "python": "python3"})
    host.obey(
        f"mkdir -p {folder}\n"
        'case "$SSH_ORIGINAL_COMMAND" in\n'
        "*hold*) tr '\\\\0' x </dev/zero ;;\n"
        f"*) cat >/dev/null; echo 'capd-bridge:{said}' ;;\n"
        "esac"
    )

    done = here.capd("bridge", "ssh", "far", "-F", str(host.config))

    assert done.returncode == 1
    assert "far says more than 1 MiB where one line was asked for" in done.stderr


def test_a_bridge_without_a_table_is_refused_before_ssh_is_started(
    here: Home, host: FarHost
) -> None:
    done = here.capd("bridge", "ssh", "far", "-F", str(host.config), "--name", "unheard-of")

    assert done.returncode == 1
    assert "[bridges.unheard-of]" in done.stderr
    assert host.left() == []


def test_a_host_that_cannot_be_reached_is_said_and_nothing_stays(here: Home, host: FarHost) -> None:
    host.config.write_text(host.config.read_text().replace(str(SSHD), "/bin/false"))

    done = here.capd("bridge", "ssh", "far", "-F", str(host.config))

    assert done.returncode == 1
    assert "far cannot be prepared" in done.stderr
    assert here.ask("bridges")["bridges"] == []


def test_the_forwarded_socket_is_for_its_user_alone(host: FarHost, bridge: SshBridge) -> None:
    mode = (host.folder / "socket").stat().st_mode

    assert mode & 0o077 == 0
    assert host.folder.stat().st_mode & 0o077 == 0
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(host.folder / "socket"))
