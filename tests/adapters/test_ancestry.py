"""Which process started which, as far as it decides about trust."""

import os
import subprocess
import sys

import pytest

from capd.adapters import platform


@pytest.mark.parametrize("pid", [0, -1])
def test_whom_nobody_started_is_nobodys_word(pid: int) -> None:
    assert platform.descends_from(pid, os.getpid())


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
