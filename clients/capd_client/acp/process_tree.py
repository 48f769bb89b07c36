"""Ends an agent and everything that it started, so that nothing outlives the editor.

An agent may ignore the end of its input, and SIGTERM as well: Gemini CLI ignores both. Its real
work may be in a child process. A child that has detached itself, as a daemon does, is found by an
environment variable that only this agent was started with. An editor may kill `capd acp` itself.
For that case a separate process, the watcher, waits beside it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "CAPD_ACP_TREE"
"""The environment variable that marks an agent's processes. Its value is different for each agent.
"""
_PROC = Path("/proc")
_POLL = 0.05
_LONGEST_END = 5.0
"""Seconds after which killing stops, even if processes keep starting others."""
_PPID, _STARTED = 1, 19
"""Indexes of the parent's pid and the start time in the fields of `/proc/PID/stat` after the name.
"""


def end(pid: int, mark: str, grace: float) -> None:
    """End the process `pid` and everything that it started: SIGTERM first, then SIGKILL.

    If the process has ended already, processes with its `mark` are still ended. SIGKILL is sent
    `grace` seconds after the call.
    """
    identity = started(pid)
    give_up_at = time.monotonic() + grace
    if identity is not None:
        _send([pid], signal.SIGTERM)
        while started(pid) == identity and time.monotonic() <= give_up_at:
            time.sleep(_POLL)
        if started(pid) == identity:
            _send([pid, *_below(pid)], signal.SIGKILL)
    _send(_marked(mark), signal.SIGTERM)
    while left := _marked(mark):
        if time.monotonic() > give_up_at:
            _send([each for pid in left for each in (pid, *_below(pid))], signal.SIGKILL)
        if time.monotonic() > give_up_at + _LONGEST_END:
            return
        time.sleep(_POLL)


def started(pid: int) -> str | None:
    """Return a text that identifies the process `pid`, even if the pid is reused.

    Return None if the process is gone or a zombie.
    """
    if not _PROC.is_dir():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return ""
        return None
    fields = _fields(pid)
    return fields[_STARTED] if fields and fields[0] not in "ZX" else None


def watch(mark: str, grace: float) -> int:
    """Start the watcher, a process that ends the agent if this process dies.

    `mark` is the agent's mark, and `grace` as for `end`. Return the file descriptor to write the
    agent's pid to.
    """
    readable, writable = os.pipe()
    if os.fork():
        os.close(readable)
        return writable
    try:
        # In its own session, so that a signal to the editor's process group does not end it early.
        os.setsid()
        os.close(writable)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        pid = int.from_bytes(os.read(readable, 8), "big")
        if pid and not os.read(readable, 1):
            end(pid, mark, grace)
    finally:
        os._exit(0)


def tell(watcher: int, pid: int) -> None:
    """Tell the watcher the pid of the agent, which it ends if this process dies.

    `watcher` is the descriptor that `watch` returned.
    """
    os.write(watcher, pid.to_bytes(8, "big"))


def spare(watcher: int) -> None:
    """Tell the watcher that the agent has exited by itself, so that its children may stay.

    `watcher` is the descriptor that `watch` returned.
    """
    with contextlib.suppress(OSError):
        os.write(watcher, b".")


def _send(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _marked(mark: str) -> list[int]:
    """Return the pids of the living processes that have this mark in their environment."""
    wanted = f"\0{MARK}={mark}\0".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        try:
            environment = b"\0" + (folder / "environ").read_bytes() + b"\0"
        except OSError:
            continue
        if wanted in environment and started(int(folder.name)) is not None:
            found.append(int(folder.name))
    return found


def _below(pid: int) -> list[int]:
    """Return the descendants of `pid`."""
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        fields = _fields(int(folder.name))
        if fields:
            parents[int(folder.name)] = int(fields[_PPID])
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found[1:]


def _fields(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the process's state on; none if it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
