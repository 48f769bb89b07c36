"""A bridge into a real container: sessions, lost connections, both ends' exits."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.bridge.container import exec_words
from capd_client.control import DaemonDownError
from capd_client.mcp_host import HostError, McpHost
from support.bridges import bridged_capability, start_with_token
from support.far_containers import FILES, FOLDER, Box, ContainerBridge, podman
from support.far_hosts import memory_has
from whole_daemon import PATIENCE, Home, home_of_its_own, wait_for

pytestmark = pytest.mark.real

PROJECT_SERVER = Path(__file__).with_name("project_server.py")
TOKEN = "host-token-7e2a-which-stays-here"


@pytest.fixture
def box() -> Iterator[Box]:
    made = Box()
    yield made
    made.remove()


@pytest.fixture
def here() -> Iterator[Home]:
    with home_of_its_own(is_shipped=False) as home:
        # Images of an ordinary user are below the home folder.
        home.env["HOME"] = os.environ["HOME"]
        journal = home.folder / "journal"
        for name in ("shared", "private"):
            bridged_capability(home, name, journal, sys.executable)
        project_capability(home)
        permitted = '[bridges.box]\ncapabilities = ["shared", "there"]\nstarts = ["there"]\n'
        start_with_token(
            home,
            f'[servers]\nlinger = 1\n[surface]\nmode = "dynamic"\n{permitted}',
            TOKEN,
            capabilities=3,
        )
        yield home


@pytest.fixture
def bridge(here: Home, box: Box) -> Iterator[ContainerBridge]:
    made = ContainerBridge(here, box)
    yield made
    if made.process.poll() is None:
        made.end()
    # Whatever a test did, nothing is left on either side.
    wait_for(lambda: box.left() == [])
    with contextlib.suppress(DaemonDownError):
        assert here.ask("bridges")["bridges"] == []


def project_capability(home: Home) -> None:
    """Define a server that runs in the container, with a program that needs no file there."""
    program = PROJECT_SERVER.read_text().replace("{{", "{ {")
    home.capability("there", ["python3", "-I", "-c", program, "capd.pyz-server", "{{PROJECT}}"])
    definition = home.folder / "tap" / "capabilities" / "there" / "default.toml"
    definition.write_text(f'{definition.read_text()}where = "project"\n')


def session_of(home: Home, key: str) -> dict[str, Any]:
    found = [each for each in home.ask("sessions")["sessions"] if each["key"] == key]
    return dict(found[0]) if found else {}


def enabled(editor: McpHost, name: str = "shared") -> None:
    editor.initialize("far-editor")
    answer = editor.call("capability", {"action": "enable", "name": name})
    assert not answer.get("isError"), answer


def echoed(editor: McpHost, text: str) -> str:
    return str(editor.call("shared__echo", {"text": text})["content"][0]["text"])


def test_an_editor_in_a_container_uses_a_server_here_and_its_token_stays_here(
    here: Home, box: Box, bridge: ContainerBridge
) -> None:
    with box.editor("one") as editor:
        enabled(editor)

        assert "hello" in echoed(editor, "hello")
        # Longer than any pipe. It comes back as a stored result, with its length.
        assert "2,097,1" in echoed(editor, "x" * (2 << 20))
        with pytest.raises(HostError):
            editor.call("private__echo", {"text": "x"})
        session = session_of(here, "bridge:box:one")
        [opened] = here.ask("bridges")["bridges"]
        assert (session["bridge"], opened["kind"], opened["target"]) == (
            *("box", "container"),
            box.name,
        )
        assert box.python(FILES, "/home", TOKEN).strip() == "[]"
        there = box.processes()
        # What holds the bridge's place, its runner, and the editor's stream.
        assert len(there) == 3
        assert [pid for pid in there if memory_has(pid, TOKEN.encode())] == []


def test_a_stream_carries_the_bytes_by_which_podman_would_detach(box: Box) -> None:
    words = [*exec_words("podman", box.name), "python3", "-c"]
    program = "import sys; print(len(sys.stdin.buffer.read()))"

    counted = subprocess.run(
        [*words, program], input=b"\x10\x11" * 10, capture_output=True, check=True
    )

    assert counted.stdout == b"20\n"


def test_a_session_is_there_again_after_its_stream_was_cut(
    here: Home, box: Box, bridge: ContainerBridge
) -> None:
    with box.editor("cut") as editor:
        enabled(editor)
        before = echoed(editor, "x")
        first = bridge.engine()

        os.kill(first, signal.SIGKILL)
        wait_for(lambda: bridge.engine() not in {0, first})
        wait_for(lambda: session_of(here, "bridge:box:cut").get("connected"))

        # The same process of the server: the session was kept, with what it holds.
        assert echoed(editor, "x") == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_here_leaves_nothing_in_the_container(
    here: Home, box: Box, bridge: ContainerBridge, number: signal.Signals
) -> None:
    assert box.left() != []

    assert bridge.end(number) == 0

    assert box.left() == []
    assert here.ask("bridges")["bridges"] == []


def test_a_killed_bridge_leaves_nothing_in_the_container(box: Box, bridge: ContainerBridge) -> None:
    bridge.end(signal.SIGKILL)

    wait_for(lambda: box.left() == [])


def test_an_end_in_the_container_ends_the_bridge_here(
    here: Home, box: Box, bridge: ContainerBridge
) -> None:
    [holder] = [pid for pid in box.processes() if b"hold-streams" in cmdline(pid)]

    os.kill(holder, signal.SIGTERM)

    assert bridge.process.wait(60) == 1
    assert f"it was ended on {box.name}" in bridge.output.read_text()
    assert here.ask("bridges")["bridges"] == []


def test_a_revoked_bridge_ends_on_both_sides(here: Home, box: Box, bridge: ContainerBridge) -> None:
    here.ask("bridge_revoke", name="box")

    assert bridge.process.wait(60) == 1
    assert "was revoked" in bridge.output.read_text()
    assert box.left() == []


def test_a_bridge_is_there_again_after_its_daemon_was_killed(
    here: Home, box: Box, bridge: ContainerBridge
) -> None:
    with box.editor("daemon") as editor:
        enabled(editor)
        here.processes[0].kill()
        here.processes[0].wait()

        here.start()

        wait_for(lambda: session_of(here, "bridge:box:daemon").get("connected"))
        assert "again" in echoed(editor, "again")


def test_a_container_that_is_removed_ends_the_attempt_and_leaves_nothing_here(
    here: Home, box: Box, bridge: ContainerBridge
) -> None:
    first = bridge.engine()

    podman("kill", box.name)

    wait_for(lambda: "cut:" in bridge.output.read_text())
    wait_for(lambda: bridge.engine() != first)
    assert bridge.end() == 0
    assert here.ask("bridges")["bridges"] == []
    box.__init__()  # type: ignore[misc]


def test_the_socket_in_the_container_is_for_its_user_alone(
    box: Box, bridge: ContainerBridge
) -> None:
    program = (
        "import os; print([oct(os.stat(each).st_mode & 0o777) for each in "
        f"['{FOLDER}', '{FOLDER}/socket', '{FOLDER}/credential']])"
    )

    assert box.python(program).strip() == "['0o700', '0o600', '0o600']"


def test_a_container_without_a_table_or_without_itself_is_refused(here: Home, box: Box) -> None:
    untold = here.capd("bridge", "container", box.name, "--name", "unheard-of")
    absent = here.capd("bridge", "container", "no-such-box", "--name", "box")

    assert (untold.returncode, absent.returncode) == (1, 1)
    assert "[bridges.unheard-of]" in untold.stderr
    assert "no container that runs is called no-such-box" in absent.stderr
    assert box.left() == []


def servers_in(box: Box) -> list[int]:
    """Return every process in the container that a server is, or has started."""
    return [
        pid
        for pid in box.processes()
        if b"capd.pyz-server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_a_project_server_runs_in_the_container_and_ends_with_its_lease(
    box: Box, bridge: ContainerBridge
) -> None:
    with box.editor("there") as editor:
        enabled(editor, "there")
        facts = json.loads(editor.call("there__where", {})["content"][0]["text"])
        editor.call("there__leave", {})

        assert facts["argv"] == ["capd.pyz-server", facts["cwd"]]
        assert facts["env"]["HOME"] == "/home/dev"
        assert len(servers_in(box)) >= 2
        editor.call("capability", {"action": "disable", "name": "there"})

        wait_for(lambda: servers_in(box) == [])


@pytest.mark.parametrize(
    "part", ["server", "shim", "guard", "runner", "hold", "engine", "bridge", "daemon"]
)
def test_nothing_is_left_in_the_container_when_a_part_is_killed(
    here: Home, box: Box, bridge: ContainerBridge, part: str
) -> None:
    with box.editor("kill") as editor:
        enabled(editor, "there")
        editor.call("there__leave", {})
        before = servers_in(box)
        assert len(before) >= 2
        runner, guard = sorted(pid for pid in box.processes() if cmdline_ends(pid, b"run"))
        [hold] = [pid for pid in box.processes() if b"hold-streams" in cmdline(pid)]
        victim = {
            "server": before[0],
            "shim": next(pid for pid in box.processes() if cmdline(pid).endswith(b"/capd.pyz\0")),
            "guard": guard,
            "runner": runner,
            "hold": hold,
            "engine": bridge.engine(),
            "bridge": bridge.process.pid,
            "daemon": here.processes[0].pid,
        }[part]

        os.kill(victim, signal.SIGKILL)

        # A killed shim is a cut: its session waits for it for half a minute, with what it has.
        patience = PATIENCE if part == "shim" else 10
        wait_for(lambda: not set(before) & set(servers_in(box)), patience)
        if part in {"hold", "engine"}:
            # Until then nothing in there removes what the bridge has put there.
            wait_for(lambda: "up again" in bridge.output.read_text())


def cmdline(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def cmdline_ends(pid: int, word: bytes) -> bool:
    return cmdline(pid).split(b"\0")[-2:-1] == [word]
