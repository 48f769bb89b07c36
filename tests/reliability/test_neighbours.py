"""What a strict server reaches of its neighbours: of their processes, and of what they leave.

Both servers are strict and work in one project. They are tried with bubblewrap, and with Landlock
alone as on a machine without it.
"""

import os
import platform as machine_facts
from collections.abc import Iterator

import pytest

from capd.adapters import platform
from capd.adapters.servers import sandboxing

from .neighbours import Level, Neighbours, neighbours
from .test_reach import READING, SIGNALLING, TRACING, is_refused

pytestmark = [
    pytest.mark.reliability,
    pytest.mark.skipif(
        not (sandboxing.machine().bwrap and sandboxing.machine().landlock),
        reason="this machine lacks bubblewrap or Landlock",
    ),
]
needs_scopes = pytest.mark.skipif(
    not sandboxing.machine().can_separate, reason="Landlock has no scopes here (Linux 6.12)"
)
needs_filter = pytest.mark.skipif(
    machine_facts.machine() not in {"x86_64", "aarch64"},
    reason="the numbers of this machine's system calls are not known",
)

LIBRARY = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def made(number):
    if number < 0:
        raise OSError(ctypes.get_errno(), "")
    return number
"""
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(machine_facts.machine(), (0, 0))
USER_KEYRING = -4
LEAVES = {
    "key": LIBRARY
    + f"said = made(libc.syscall({ADD_KEY}, b'user', b'capd', b'canary', 6, {USER_KEYRING}))",
    "abstract socket": """
import builtins, socket
builtins.kept = socket.socket(socket.AF_UNIX)
builtins.kept.bind("\\0capd-neighbour")
builtins.kept.listen()
""",
    "temporary file": "open('/tmp/capd-neighbour', 'w').write('canary')",
    "shared file": "open('/dev/shm/capd-neighbour', 'w').write('canary')",
    "shared memory": LIBRARY + "said = made(libc.shmget(0x4711, 4096, 0o1600))",
    "queue": LIBRARY
    + "said = made(ctypes.CDLL('librt.so.1', use_errno=True).mq_open(b'/capd', 66, 0o600, None))",
    "port": """
import builtins, socket
builtins.kept_too = socket.create_server(("127.0.0.1", 47119))
""",
}
"""What the victim leaves where all processes of a user may find it."""
TAKES = {
    "key": LIBRARY
    + f"key = made(libc.syscall({KEYCTL}, 10, {USER_KEYRING}, b'user', b'capd', 0))\n"
    + f"text = ctypes.create_string_buffer(64)\nmade(libc.syscall({KEYCTL}, 11, key, text, 64))\n"
    + "said = text.value.decode()",
    "abstract socket": """
import socket
socket.socket(socket.AF_UNIX).connect("\\0capd-neighbour")
""",
    "temporary file": "said = open('/tmp/capd-neighbour').read()",
    "shared file": "said = open('/dev/shm/capd-neighbour').read()",
    "shared memory": LIBRARY + "said = made(libc.shmget(0x4711, 4096, 0))",
    "queue": LIBRARY
    + "said = made(ctypes.CDLL('librt.so.1', use_errno=True).mq_open(b'/capd', 2))",
    "port": "import socket; socket.create_connection(('127.0.0.1', 47119), 5)",
}
SHARED_WITH_LANDLOCK_ALONE = {"shared file", "shared memory"}
"""As the security page says."""
TIDY = "import os; os.unlink('/dev/shm/capd-neighbour')", LIBRARY + "libc.shmctl({id}, 0, None)"


@pytest.fixture(scope="module", params=["strict", "landlock"])
def strict(request: pytest.FixtureRequest) -> Iterator[Neighbours]:
    level: Level = request.param
    with neighbours(level) as made:
        yield made
        made.world.ask_neighbour()


def is_out_of_reach(said: str) -> bool:
    return is_refused(said) or said in {"refused: ESRCH", "refused: ECONNREFUSED"}


def victims(strict: Neighbours) -> dict[str, int]:
    assert strict.world.process is not None
    pid = strict.world.pid("victim")
    return {
        "victim": pid,
        "guard": platform.parent_pid(pid) or 0,
        "daemon": strict.world.process.pid,
    }


def reached(strict: Neighbours, attacks: dict[str, str]) -> dict[str, str]:
    """Return what the thief makes of attacks on other processes that succeed."""
    said = {
        f"{name} of {victim}": strict.thief(attack.replace("{pid}", str(pid)))
        for victim, pid in victims(strict).items()
        for name, attack in attacks.items()
    }
    return {name: each for name, each in said.items() if not is_out_of_reach(each)}


def test_a_strict_server_traces_no_other_process(strict: Neighbours) -> None:
    # Root may read what the kernel shows to whoever measures its performance.
    is_root_seeing = os.geteuid() == 0 and strict.level == "landlock"
    reading = {} if is_root_seeing else READING

    assert reached(strict, {**TRACING, **reading}) == {}


@needs_scopes
def test_a_strict_server_signals_no_other_process(strict: Neighbours) -> None:
    assert reached(strict, SIGNALLING) == {}


@needs_filter
def test_a_strict_server_changes_no_limit_of_another_process(strict: Neighbours) -> None:
    change = (
        "import resource\n"
        "now = resource.prlimit({pid}, resource.RLIMIT_CORE)\n"
        "said = resource.prlimit({pid}, resource.RLIMIT_CORE, now)"
    )

    assert reached(strict, {"limit": change}) == {}


@needs_filter
def test_a_strict_server_finds_nothing_that_its_neighbour_left(strict: Neighbours) -> None:
    left = {name: strict.victim(each) for name, each in LEAVES.items()}
    found = {name: strict.thief(each) for name, each in TAKES.items()}

    file, memory = TIDY
    strict.victim(file)
    strict.victim(memory.replace("{id}", left["shared memory"]))
    taken = {name for name, said in found.items() if not is_out_of_reach(said)}
    assert taken == (SHARED_WITH_LANDLOCK_ALONE if strict.level == "landlock" else set())
