"""Which process started which, as far as it decides about trust."""

import os
import subprocess
import sys

import pytest

from capd.adapters import platform
from capd.adapters.platform.ancestry import is_below


@pytest.mark.parametrize(
    ("pid", "ancestor", "expected"),
    [
        (5, 5, True),
        (7, 5, True),
        (9, 5, True),
        (4, 5, False),
        (1, 5, False),
        (0, 5, True),
        (-1, 5, True),
        (66, 5, True),
    ],
)
def test_a_process_is_below_whoever_started_it(pid: int, ancestor: int, expected: bool) -> None:
    parents = {9: 7, 7: 5, 5: 1, 4: 1}

    assert is_below(pid, ancestor, parents.get) is expected


def test_a_loop_of_parents_ends_as_below() -> None:
    assert is_below(2, 5, {2: 3, 3: 2}.get) is True


def test_a_child_is_below_us_and_our_parent_is_not() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert platform.descends_from(child.pid, os.getpid())
            assert not platform.descends_from(os.getppid(), os.getpid())
        finally:
            child.kill()


def test_a_process_that_is_gone_is_nobodys_word() -> None:
    with subprocess.Popen(["true"]) as child:
        child.wait()

    assert platform.descends_from(child.pid, os.getpid())
    assert not platform.has_terminal(child.pid)


@pytest.mark.parametrize(("wrapped", "expected"), [(False, False), (True, True)])
def test_a_terminal_is_seen(wrapped: bool, expected: bool) -> None:
    look = (
        "import os; from capd.adapters import platform; print(platform.has_terminal(os.getpid()))"
    )
    command = [sys.executable, "-P", "-c", look]
    if wrapped:
        command = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command]

    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == str(expected)
