"""What a hostile server reaches of capd, of its siblings and of the daemon, with default settings.

Each attack is run inside a server, next to an honest one that must not notice. What the machine
cannot forbid is skipped, visibly.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from capd.adapters import platform
from capd.adapters.servers import sandboxing

from .world import Session, World

pytestmark = pytest.mark.reliability

OBEYING_SERVER = Path(__file__).parent / "obeying_server.py"
CANARY = "canary-4711"

needs_hiding = pytest.mark.skipif(
    not sandboxing.machine().can_hide, reason="this machine allows no mount namespaces"
)
needs_domain = pytest.mark.skipif(
    not sandboxing.machine().can_separate,
    reason="Landlock has no scopes here (Linux 6.12)",
)
needs_either = pytest.mark.skipif(
    not (sandboxing.machine().can_hide or sandboxing.machine().can_separate),
    reason="this machine has neither user namespaces nor scopes of Landlock",
)


not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may read and unmount anything")


class Heist:
    """A hostile server, its victim, and what of capd's is worth stealing."""

    def __init__(self, world: World) -> None:
        self.world = world
        home = world.home
        argv = [sys.executable, "-I", str(OBEYING_SERVER), home.tag]
        home.capability("thief", argv)
        world.honest("bank")
        bank = home.folder / "tap/capabilities/bank/default.toml"
        bank.write_text(bank.read_text() + f'env = {{ BANK_TOKEN = "{CANARY}" }}\n')
        self.treasures = {
            "secret": home.folder / "config/secrets.env",
            "token": home.folder / "state/http.token",
            "trust": home.folder / "state/trust.json",
            "result": home.folder / "cache/results/other/1.json",
            "memory": home.folder / "data/memories/mine.md",
        }
        for path in self.treasures.values():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(f"KEY={CANARY}\n" if path.suffix == ".env" else "{}\n")
            path.chmod(0o600)
        self.launcher = home.folder / "data/bin/capd-mcp"
        self.launcher.parent.mkdir(parents=True)
        self.launcher.write_text("#!/bin/sh\n")
        world.start()
        assert world.process is not None
        self.daemon = world.process.pid
        self.session: Session = world.session("thief", "thief", "bank")
        self.session.said("bank__echo", "open")
        self.bank = world.pid("bank")
        self.guard = platform.parent_pid(self.bank) or 0

    def run(self, source: str) -> str:
        """Return what the hostile server makes of a piece of Python."""
        return self.session.said("thief__run", source)

    def successes(self, attacks: Mapping[str, str], pid: int) -> dict[str, str]:
        """Return what the hostile server makes of those attacks on a process that succeed."""
        answers = {
            name: self.run(each.replace("{pid}", str(pid))) for name, each in attacks.items()
        }
        return {name: said for name, said in answers.items() if not is_refused(said)}

    def status(self, name: str) -> str:
        return str(self.world.server(name)["sandbox"])


@pytest.fixture
def evil_server() -> list[str]:
    """Override: these tests need no server from outside of the repository."""
    return []


@pytest.fixture
def heist(world: World) -> Iterator[Heist]:
    made = Heist(world)
    yield made
    made.session.said("bank__echo", "still there")


def is_refused(said: str) -> bool:
    return said in {"refused: EACCES", "refused: EPERM", "refused: ENOENT", "refused: EROFS"}


PTRACE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
null = ctypes.c_void_p()
if libc.ptrace(16, {pid}, null, null):
    raise OSError(ctypes.get_errno(), "")
os.waitpid({pid}, 0x40000000)
libc.ptrace(17, {pid}, null, null)
said = "traced"
"""
TAKE_FD = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pidfd = os.pidfd_open({pid})
fd = libc.syscall(438, pidfd, 0, 0)
if fd < 0:
    raise OSError(ctypes.get_errno(), "")
said = "took it"
"""
READ_MEMORY = """
import ctypes, os
where = next(line for line in open("/proc/{pid}/maps") if "[stack]" in line)
said = where
"""
SIGNAL_BY_IO = """
import fcntl, os, signal, time
reader, writer = os.pipe()
fcntl.fcntl(reader, fcntl.F_SETOWN, {pid})
fcntl.fcntl(reader, 10, signal.SIGUSR2)
fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
os.write(writer, b"x")
said = "sent"
"""


READING = {
    "environment": 'said = open("/proc/{pid}/environ").read()',
    "descriptors": 'import os; said = os.readlink("/proc/{pid}/fd/0")',
    "maps": READ_MEMORY,
}
"""What the kernel lets whoever may watch its performance read, and so root."""
TRACING = {
    "pipe": 'import os; said = os.open("/proc/{pid}/fd/1", os.O_WRONLY)',
    "memory": 'said = open("/proc/{pid}/mem", "rb")',
    "root": 'import os; said = os.listdir("/proc/{pid}/root")',
    "folder": 'import os; said = os.listdir("/proc/{pid}/cwd/")',
    "ptrace": PTRACE,
    "pidfd_getfd": TAKE_FD,
}
SIGNALLING = {
    "kill": "import os, signal; os.kill({pid}, signal.SIGURG)",
    "pidfd": "import os, signal; signal.pidfd_send_signal(os.pidfd_open({pid}), signal.SIGURG)",
    "group": "import os, signal; os.killpg(os.getpgid({pid}), signal.SIGURG)",
}


@needs_either
@not_root
@pytest.mark.parametrize("victim", ["bank", "guard", "daemon"])
def test_a_server_reads_no_other_process_of_capd(heist: Heist, victim: str) -> None:
    assert heist.successes(READING, getattr(heist, victim)) == {}


@needs_either
@pytest.mark.parametrize("victim", ["bank", "guard", "daemon"])
def test_a_server_traces_no_other_process_of_capd(heist: Heist, victim: str) -> None:
    assert heist.successes(TRACING, getattr(heist, victim)) == {}


@needs_domain
@pytest.mark.parametrize("victim", ["bank", "guard", "daemon"])
def test_a_server_signals_no_other_process_of_capd(heist: Heist, victim: str) -> None:
    assert heist.successes(SIGNALLING, getattr(heist, victim)) == {}


@needs_domain
def test_a_server_signals_nobody_by_owning_a_pipe(heist: Heist) -> None:
    """The signal of `F_SETOWN` is sent by the kernel, later; SIGUSR2 would end the sibling."""
    heist.run(SIGNAL_BY_IO.replace("{pid}", str(heist.bank)))

    assert heist.session.said("bank__echo", "after").endswith("after")
    assert heist.world.pid("bank") == heist.bank


@needs_domain
def test_a_server_changes_no_limit_of_the_daemon(heist: Heist) -> None:
    """Landlock and namespaces allow `prlimit` on processes of the same user."""
    said = heist.run(
        "import resource\n"
        f"now = resource.prlimit({heist.daemon}, resource.RLIMIT_CORE)\n"
        f"said = resource.prlimit({heist.daemon}, resource.RLIMIT_CORE, now)"
    )

    assert is_refused(said), said


@needs_either
def test_a_server_reaches_no_file_through_a_process_outside(heist: Heist) -> None:
    """A process of the same user that is no part of capd, such as a shell, sees everything."""
    secret = heist.treasures["secret"]

    said = heist.run(f'said = open("/proc/{os.getpid()}/root{secret}").read()')

    assert is_refused(said), said


@needs_hiding
def test_a_server_reads_nothing_of_capds(heist: Heist) -> None:
    reading = {
        name: f"said = open({json.dumps(str(path))}).read()"
        for name, path in heist.treasures.items()
    }
    assert all(path.exists() for path in heist.treasures.values())

    found = {name: heist.run(each) for name, each in reading.items()}

    assert set(found.values()) == {"refused: ENOENT"}, found


CHANGES = {
    "configuration": "open('config/config.toml', 'w').write('x')",
    "taps": "open('config/taps.toml', 'a').write('x')",
    "moved taps": "os.replace('config/taps.toml', 'config/old')",
    "launcher": "open('data/bin/capd-mcp', 'w').write('x')",
    "no launcher": "os.unlink('data/bin/capd-mcp')",
    "socket": "os.unlink('run/capd.sock')",
    "moved folder": "os.rename('state', 'state-of-mine')",
    "mode": "os.chmod('config', 0o777); open('config/config.toml', 'w').write('x')",
    "connection": "socket.socket(socket.AF_UNIX).connect('run/capd.sock')",
}


@needs_hiding
def test_a_server_changes_nothing_of_capds(heist: Heist) -> None:
    folder = heist.world.home.folder
    files = (heist.launcher, folder / "config/taps.toml")
    before = [path.read_bytes() for path in files]
    there = f"import os, socket\nos.chdir({json.dumps(str(folder))})\n"

    found = heist.successes({name: there + each for name, each in CHANGES.items()}, 0)

    assert found == {"moved folder": "refused: EBUSY"}
    assert [path.read_bytes() for path in files] == before
    assert Path(heist.world.home.socket).is_socket()


UNCOVER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if {nested}:
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(0x10000000 | 0x20000):
        raise OSError(ctypes.get_errno(), "")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        open("/proc/self/" + name, "w").write(text)
config = {config}
libc.umount2(config.encode(), 2)
said = open(config + "/secrets.env").read()
"""


@needs_hiding
@not_root
def test_a_server_cannot_uncover_what_is_hidden(heist: Heist) -> None:
    config = json.dumps(str(heist.world.home.folder / "config"))

    found = [
        heist.run(UNCOVER.replace("{nested}", str(nested)).replace("{config}", config))
        for nested in (False, True)
    ]

    assert found == ["refused: ENOENT"] * 2


@needs_hiding
@needs_domain
def test_what_holds_is_told(heist: Heist) -> None:
    assert heist.status("thief").startswith("guard, capd hidden, apart")
