"""Servers in containers on a real engine: what they see, and how they end."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.mcp_host import McpHost
from capd_protos.tree_marks import home_mark
from support.containers import PYTHON, image
from whole_daemon import Home, wait_for

pytestmark = pytest.mark.real

CANARY = "canary-of-a-container-93fd"
ARGS = '["-I", "/server.py"]'
STAYS = '["-I", "/server.py", "stays"]'


@pytest.fixture(scope="module")
def pinned() -> str:
    name, why = image()
    if not name:
        pytest.skip(why)
    return name


@pytest.fixture
def project(home: Home) -> Path:
    folder = home.folder / "code" / "shop"
    folder.mkdir(parents=True)
    (folder / "notes").write_text("notes of the project")
    return folder


class Engine:
    """One daemon's containers in the engine, and their processes."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._label = f"label=capd.home={home_mark(str(home.folder / 'state'))}"

    def run(self, *words: str) -> str:
        return subprocess.run(
            ["podman", *words], capture_output=True, text=True, check=True, env=self._home.env
        ).stdout

    @property
    def ids(self) -> list[str]:
        return self.run("ps", "--all", "--quiet", "--no-trunc", "--filter", self._label).split()

    def pid(self, container: str) -> int:
        return int(self.run("inspect", "--format={{.State.Pid}}", container))

    def conmon(self, container: str) -> int:
        return int(self.run("inspect", "--format={{.State.ConmonPid}}", container))


@pytest.fixture
def engine(home: Home) -> Iterator[Engine]:
    # Images of an ordinary user are below the home folder.
    home.env["HOME"] = os.environ["HOME"]
    found = Engine(home)
    yield found
    for each in found.ids:
        # The daemon's guard may be removing it: the engine then refuses a second removal.
        with contextlib.suppress(subprocess.CalledProcessError):
            found.run("rm", "--force", "--ignore", "--time=0", each)


def contained(home: Home, name: str, pinned: str, more: str = "", args: str = ARGS) -> None:
    """Define a capability whose server runs in a container."""
    home.capability(name, [PYTHON])
    file = home.folder / "tap" / "capabilities" / name / "default.toml"
    file.write_text(
        f'[[mcp.servers]]\nname = "{name}"\nruntime = "container"\nimage = "{pinned}"\n'
        f'command = "{PYTHON}"\nargs = {args}\n{more}\n'
    )


def enable(home: Home, session: str, name: str) -> dict[str, Any]:
    return home.ask("enable", session=session, name=name)


def call(editor: McpHost, name: str, tool: str, path: str = "") -> tuple[Any, bool]:
    """Return a contained tool's answer, and whether it is an error."""
    answer = editor.ask("tools/call", {"name": f"{name}__{tool}", "arguments": {"path": path}})
    text = answer["content"][0]["text"]
    return (text, True) if answer.get("isError") else (json.loads(text), False)


def test_a_container_sees_its_project_and_nothing_else_of_this_machine(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "seer", pinned)
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "seer")["ok"]

    seen, _ = call(editor, "seer", "look")

    assert seen["environment"].items() >= {"HOME": "/tmp"}.items()
    allowed = {"HOME", "PATH", "TERM", "HOSTNAME", "container", "LC_CTYPE"}
    assert set(seen["environment"]) <= allowed
    assert int(seen["capabilities"], 16) == 0
    assert seen["no_new_privileges"] == "1"
    assert seen["interfaces"] == ["lo"]
    # The init of the engine, and the server.
    assert len(seen["processes"]) == 2
    below_home = [each for each in seen["mounts"] if each.startswith(str(home.folder))]
    assert below_home == [str(project)]
    assert call(editor, "seer", "read", str(project / "notes")) == ("notes of the project", False)
    for hidden in (home.folder / "config" / "taps.toml", Path(__file__)):
        assert call(editor, "seer", "read", str(hidden))[1]
    for path in ("/new", "/python/new", str(project / "new")):
        assert call(editor, "seer", "write", path)[1]
    assert not call(editor, "seer", "write", "/tmp/new")[1]
    [entry] = home.servers()
    assert entry["sandbox"].startswith("container (podman")
    assert entry["sandbox"].endswith("no network")
    editor.leave()


def test_a_container_writes_its_project_where_that_was_asked_for(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "writer", pinned, 'mount = "write"')
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "writer")["ok"]

    written = call(editor, "writer", "write", str(project / "new"))

    assert written == (7, False)
    assert (project / "new").read_text() == "written"
    assert (project / "new").stat().st_uid == os.getuid()
    editor.leave()


def everywhere(folders: list[Path], text: str) -> list[str]:
    """Return the files and processes of this machine in which `text` is."""
    found = []
    for folder in folders:
        for each in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if each.is_file() and not each.is_symlink() and text.encode() in each.read_bytes():
                    found.append(str(each))
    for each in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if text.encode() in (each / name).read_bytes():
                    found.append(f"{each / name}")
    return found


def test_a_secret_is_in_the_servers_environment_and_nowhere_else(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "vault", pinned, 'env = { TOKEN = "Bearer {{ENV:KEY}}", MODE = "fast" }')
    secrets = home.folder / "config" / "secrets.env"
    secrets.write_text(f"KEY={CANARY}\n")
    secrets.chmod(0o600)
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "vault")["ok"]
    [container] = engine.ids
    storage = engine.run("info", "--format={{.Store.GraphRoot}} {{.Store.RunRoot}}").split()
    kept = [Path(each) for each in storage]
    folders = [
        *(kept[0] / each for each in ("libpod", "overlay-containers", "vfs-containers")),
        *(kept[1], home.folder / "state", home.folder / "run", home.folder / "cache"),
    ]

    seen, _ = call(editor, "vault", "look")
    found = everywhere(folders, CANARY)

    assert seen["environment"]["TOKEN"] == f"Bearer {CANARY}"
    assert seen["environment"]["MODE"] == "fast"
    inspected = engine.run("inspect", container)
    assert "fast" in inspected
    assert CANARY not in inspected
    # The shell that read it has become the server.
    children = Path(f"/proc/{engine.pid(container)}/task/{engine.pid(container)}/children")
    server = children.read_text().split()[0]
    assert found == [f"/proc/{server}/environ"]
    editor.leave()


def test_sessions_share_a_container_that_is_removed_after_the_last(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "shared", pinned, args=STAYS)
    home.start()
    editors = [home.shim(each, project) for each in ("one", "two")]
    for each in ("one", "two"):
        assert enable(home, each, "shared")["ok"]
    both = engine.ids

    editors[0].leave()
    call(editors[1], "shared", "look")
    one = engine.ids
    editors[1].leave()

    wait_for(lambda: not engine.ids)
    assert len(both) == 1
    assert one == both
    assert wait_for(lambda: not list((home.folder / "state" / "containers").iterdir()))


VICTIMS = ("engine", "monitor", "container", "guard")


def victim(engine: Engine, home: Home, kind: str) -> int:
    [container] = engine.ids
    [entry] = home.servers()
    if kind == "engine":
        return int(entry["pid"])
    if kind == "monitor":
        return engine.conmon(container)
    if kind == "container":
        return engine.pid(container)
    status = Path(f"/proc/{entry['pid']}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


@pytest.mark.parametrize("kind", VICTIMS)
@pytest.mark.parametrize("args", [ARGS, STAYS], ids=["ends", "stays"])
def test_nothing_is_left_of_a_container_when_a_part_of_it_is_killed(
    home: Home, engine: Engine, project: Path, pinned: str, *, kind: str, args: str
) -> None:
    contained(home, "killed", pinned, args=args)
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "killed")["ok"]
    [before] = engine.ids
    process = engine.pid(before)

    os.kill(victim(engine, home, kind), signal.SIGKILL)

    wait_for(lambda: before not in engine.ids)
    wait_for(lambda: not Path(f"/proc/{process}").exists())
    # It is started again for the session, which still holds it.
    assert wait_for(lambda: not call(editor, "killed", "look")[1])
    editor.leave()
    wait_for(lambda: not engine.ids)


@pytest.mark.parametrize("with_guard", [False, True], ids=["daemon", "daemon and guard"])
def test_the_next_daemon_removes_what_a_killed_one_has_left(
    home: Home, engine: Engine, project: Path, pinned: str, *, with_guard: bool
) -> None:
    contained(home, "left", pinned, args=STAYS)
    first = home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "left")["ok"]
    [container] = engine.ids
    process = engine.pid(container)
    guard = victim(engine, home, "guard")

    first.kill()
    if with_guard:
        os.kill(guard, signal.SIGKILL)
    first.wait()

    # Its processes end without anybody, and what the engine keeps of it with the next start.
    wait_for(lambda: not Path(f"/proc/{process}").exists())
    home.start()
    wait_for(lambda: container not in engine.ids)
    editor.leave()
    wait_for(lambda: not engine.ids)


def test_memory_and_processes_of_a_container_are_bounded(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "hungry", pinned, "memory_mib = 128")
    if "memory" not in engine.run("info", "--format={{.Host.CgroupControllers}}"):
        pytest.skip("this engine bounds nothing here")
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "hungry")["ok"]

    [container] = engine.ids
    limits = engine.run(
        "inspect", "--format={{.HostConfig.Memory}} {{.HostConfig.PidsLimit}}", container
    )

    _, is_error = call(editor, "hungry", "eat", str(512 << 20))

    assert is_error
    assert limits.split() == [str(128 << 20), "512"]
    editor.leave()


def test_processors_of_a_container_are_bounded(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "busy", pinned, "cpus = 0.5")
    controllers = engine.run("info", "--format={{.Host.CgroupControllers}}")
    if os.getuid() and "cpu" not in controllers.strip("[]\n").split():
        pytest.skip("this engine bounds no processors here")
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "busy")["ok"]

    [container] = engine.ids
    limit = engine.run("inspect", "--format={{.HostConfig.NanoCpus}}", container)

    quotas = [
        call(editor, "busy", "read", path)[0]
        for path in ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
    ]
    assert limit.strip() == "500000000"
    # Of 100 ms: in the second or the first version of control groups.
    assert {"50000 100000\n", "50000\n"} & set(quotas)
    editor.leave()


def test_a_container_reaches_no_port_of_this_machine(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "alone", pinned)
    home.start()
    editor = home.shim("s", project)
    assert enable(home, "s", "alone")["ok"]

    for host in ("127.0.0.1:22", "10.0.0.1:80", "192.0.2.1:80"):
        assert call(editor, "alone", "connect", host)[1]
    editor.leave()


def test_a_project_that_holds_capds_folders_is_not_mounted(
    home: Home, engine: Engine, pinned: str
) -> None:
    contained(home, "wide", pinned)
    home.start()
    editor = home.shim("s", home.folder)

    refused = enable(home, "s", "wide")

    assert not refused["ok"]
    assert "open another folder" in json.dumps(refused)
    assert engine.ids == []
    editor.leave()


def test_no_container_of_a_clone_is_started_before_it_was_agreed_to(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    folder = project / ".capd" / "capabilities" / "cloned"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        'triggers = ["query the app database", "read a table", "run some sql"]\n'
    )
    (folder / "default.toml").write_text(
        f'[[mcp.servers]]\nname = "cloned"\nruntime = "container"\nimage = "{pinned}"\n'
        f'command = "{PYTHON}"\nargs = {ARGS}\nnetwork = true\n'
    )
    home.start()
    editor = home.shim("s", project)

    before = home.ask("enable", session="s", name="cloned")
    ids = engine.ids
    agreed = home.at_terminal("trust", str(project), typed="y\n")

    assert not before["ok"]
    assert ids == []
    assert "its container has a network" in " ".join(agreed.stdout.split())
    assert pinned in agreed.stdout
    wait_for(lambda: home.ask("enable", session="s", name="cloned")["ok"])
    editor.leave()


def test_code_of_an_untrusted_project_does_not_run_in_a_container(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "of_project", pinned, args='["{{PROJECT}}/server.py"]')
    home.start()
    editor = home.shim("s", project)

    refused = enable(home, "s", "of_project")

    assert not refused["ok"]
    assert "not trusted" in json.dumps(refused)
    assert engine.ids == []
    editor.leave()


def test_an_image_that_is_not_here_says_so(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    contained(home, "absent", f"localhost/none@sha256:{'0' * 64}")
    home.start()
    editor = home.shim("s", project)

    refused = enable(home, "s", "absent")

    assert not refused["ok"]
    assert "localhost/none" in json.dumps(refused)
    wait_for(lambda: not engine.ids)
    editor.leave()


def test_a_machine_without_an_engine_says_what_to_install(
    home: Home, project: Path, pinned: str
) -> None:
    contained(home, "nowhere", pinned)
    empty = home.folder / "bin"
    empty.mkdir()
    home.env["PATH"] = str(empty)
    home.env["SHELL"] = "/bin/false"
    home.start()
    editor = home.shim("s", project)

    refused = enable(home, "s", "nowhere")

    assert not refused["ok"]
    assert "install the package podman" in json.dumps(refused)
    editor.leave()


def test_a_server_that_is_podman_run_itself_ends_with_its_last_session(
    home: Home, engine: Engine, project: Path, pinned: str
) -> None:
    podman = shutil.which("podman") or ""
    bounds = ["--ulimit=nofile=512:512", "--ulimit=nproc=512:512", "--network=none"]
    label = f"capd-test-plain={os.getpid()}"
    words = [podman, "run", "--rm", "-i", f"--label={label}", *bounds]
    home.capability("plain", [*words, f"--entrypoint={PYTHON}", pinned, "-I", "/server.py"])
    home.start()
    editors = [home.shim(each, project) for each in ("one", "two")]
    for each in ("one", "two"):
        assert enable(home, each, "plain")["ok"]

    def running() -> list[str]:
        return engine.run("ps", "--quiet", "--filter", f"label={label}").split()

    shared = running()
    editors[0].leave()
    call(editors[1], "plain", "look")
    editors[1].leave()

    wait_for(lambda: not running())
    assert len(shared) == 1
