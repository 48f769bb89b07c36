"""Linux-only calls are made in `adapters/platform`, or in a listed exception with its reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLATFORM = "daemon/capd/adapters/platform/"
LINUX_NAMES = {
    *(
        "SO_PEERCRED",
        "SO_PEERPIDFD",
        "O_TMPFILE",
        "memfd_create",
        "pidfd_open",
        "pidfd_send_signal",
    ),
    *("prctl", "inotify_init", "setns", "unshare", "epoll", "eventfd", "timerfd_create"),
}
LINUX_PATHS = re.compile(r"/proc(/|$)|/sys/(fs|kernel|devices)(/|$)")

EXCEPTIONS = {
    "daemon/capd/adapters/regular_files.py": "looks whether the link exists; a second check",
    "daemon/capd/adapters/spool.py": "whoever names a file catches OSError",
    "daemon/capd/adapters/parsing/process.py": "a small process; asks getrusage elsewhere",
    "daemon/capd/adapters/servers/sandboxing.py": "words for bwrap, which Linux alone has",
    "daemon/capd/core/servers/sandbox.py": "words for bwrap; names of programs",
    "clients/capd_client/bridge/far_side.py": "runs on the far side, without capd",
    "clients/capd_client/doctor/processes.py": "takes another folder, and finds none elsewhere",
    "clients/capd_client/doctor/files.py": "reads a table of locks if there is one",
    "clients/capd_client/doctor/sandbox.py": "checks the sandbox, which Linux alone has",
    "clients/capd_client/acp/process_tree.py": "asks `ps` elsewhere",
    "clients/capd_client/service/stopping.py": "asks whether Python has the call",
    "clients/capd_client/shim/link.py": "imports nothing of capd; each use has another way",
    "clients/capd_client/control.py": "asks which system this is",
    "clients/capd_client/bridge/runner.py": "runs on the far side, without capd",
}


def linux_calls(text: str) -> set[str]:
    """Return the Linux-only calls in the source `text`, without those in comments."""
    tree = ast.parse(text)
    return {found for node in ast.walk(tree) for found in _of(node)} - _docstrings(tree)


def _of(node: ast.AST) -> Iterator[str]:
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
    if name in LINUX_NAMES:
        yield str(name)
    text = node.value if isinstance(node, ast.Constant) else None
    if isinstance(text, str) and (text in LINUX_NAMES or LINUX_PATHS.match(text)):
        yield text


def _docstrings(tree: ast.AST) -> set[str]:
    return {
        node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def uses() -> dict[str, set[str]]:
    """Return the modules that use something of Linux."""
    found = {}
    for folder in ("daemon", "clients", "protos"):
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if calls := linux_calls(path.read_text(encoding="utf-8")):
                found[name] = calls
    return found


def test_calls_of_linux_are_in_the_platform_adapter_or_are_known() -> None:
    outside = {name: calls for name, calls in uses().items() if not name.startswith(PLATFORM)}

    unknown = {name: calls for name, calls in outside.items() if name not in EXCEPTIONS}
    assert unknown == {}
    # An exception that is no longer needed would hide the next call in that file.
    assert sorted(EXCEPTIONS.keys() - outside.keys()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('open("/proc/self/status")', {"/proc/self/status"}),
        ('f"/proc/{pid}/stat"', {"/proc/"}),
        ('Path("/proc", str(pid))', {"/proc"}),
        ("os.pidfd_open(1)", {"pidfd_open"}),
        ('getattr(os, "pidfd_open", None)', {"pidfd_open"}),
        ("from x import y\nprctl(1)", {"prctl"}),
        ('"""Reads /proc."""\n# /proc/1\nprocess("/processes")', set()),
        ('"""/proc/1 is not read."""', set()),
    ],
)
def test_a_planted_call_is_found(text: str, found: set[str]) -> None:
    assert linux_calls(text) == found
