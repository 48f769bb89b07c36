"""The processes of all servers of this daemon: grouped, marked, adopted and ended.

A guard is the parent process of one server, and ends the server's process tree. This module is for
the case that a guard was killed or stopped. The daemon is a child subreaper, so it inherits the
tree's processes. A control group (systemd) or a mark tells which processes these are. If the daemon
dies together with its guards, a watcher process ends the trees. Functions block unless they are
`async`.
"""

import contextlib
import os
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import structlog
import trio

from capd.adapters import platform
from capd.adapters.platform.cgroups import ServerGroups, delegated_groups, end_group
from capd.core.servers.membership import Membership, is_adopted, strongest_method
from capd.core.servers.restarts import Backoff
from capd_protos.tree_marks import LIMIT, Mark, any_life, home_mark

_WATCHER = Path(platform.__file__).with_name("watcher.py")
_WATCHER_KEYS = ("LD_LIBRARY_PATH",)
_END_TIMEOUT = 5.0
_PAUSE = 0.02
_STEADY = 60.0

log = structlog.get_logger(actor="trees")


@dataclass(slots=True, eq=False)
class Tree:
    """The processes of one server, from the start of its guard to the end of the last process."""

    guard: int
    group: Path | None = None

    def membership(self, prefix: tuple[str, ...]) -> Membership:
        """Return how the daemon finds the processes of the tree.

        `prefix` are the words before the server's own command.
        """
        has_proc = sys.platform == "linux"
        return strongest_method(prefix, has_group=self.group is not None, has_proc=has_proc)


@dataclass(slots=True)
class Trees:
    """All process trees of one daemon.

    Until `begin`, no orphan is adopted and no control group is created; a server's tree is only
    marked.
    """

    mark: Mark = field(default_factory=lambda: Mark("00000000", secrets.token_hex(8)))
    own_limit: int | None = None
    """The hard limit of file locks of this process; None if it has none."""
    _groups: ServerGroups | None = None
    _guards: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _ending: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, state: Path, *, is_service: bool) -> None:
        """Start adopting orphans; end processes that an earlier daemon with this state folder left.

        `is_service` says that systemd runs this daemon, which may then create control groups.
        """
        with contextlib.suppress(OSError):
            platform.become_subreaper()
        self.mark = Mark(home_mark(str(state)), secrets.token_hex(8))
        self.own_limit = _own_limit()
        self._groups = delegated_groups() if is_service else None
        if self._groups is not None:
            self._groups.end_earlier(_END_TIMEOUT)
        wanted = any_life(self.mark.home)
        give_up_at = time.monotonic() + _END_TIMEOUT
        count = len(platform.marked(wanted.low, wanted.high, wanted.prefix.encode()))
        while platform.end_marked(wanted.low, wanted.high, wanted.prefix.encode()):
            if time.monotonic() > give_up_at:
                log.error("leftovers_survived")
                return
            time.sleep(_PAUSE)
        if count:
            log.warning("leftovers_ended", processes=count)

    @property
    def membership(self) -> Membership:
        """How the members of a tree are found if its processes have no namespace of their own."""
        return strongest_method(
            (), has_group=self._groups is not None, has_proc=sys.platform == "linux"
        )

    @property
    def limit(self) -> int:
        """The hard limit of file locks that a guard sets, to mark the processes of its tree."""
        return self.mark.limit(self.own_limit)

    def is_marked(self, pid: int) -> bool:
        """Tell whether a process inherited the mark of a server of this state folder."""
        value = platform.marking_value(pid).decode(errors="replace")
        return any_life(self.mark.home).matches(platform.hard_limit(pid), value)

    def enter(self, guard: int) -> Tree:
        """Register the tree of the guard with this pid.

        The guard has just been started, and has got no command yet.
        """
        with self._lock:
            self._guards.add(guard)
        return Tree(guard, self._groups.enter(guard) if self._groups is not None else None)

    def leave(self, tree: Tree, *, is_guard_lost: bool) -> None:
        """End the processes that are left of a tree whose guard has ended and was reaped.

        `is_guard_lost` says that the guard was killed. Otherwise none is left, because a guard ends
        only after its last process.
        """
        with self._lock:
            self._guards.discard(tree.guard)
        if tree.group is not None and not end_group(tree.group, _END_TIMEOUT):
            log.error("group_survived", guard=tree.guard)
        if is_guard_lost:
            self.end_adopted()

    def end_adopted(self) -> int:
        """Kill the orphans that were adopted from servers.

        Return how many there were at first. Each is reaped by its pid, because waiting for any
        child could take the exit status of a process that other code waits for.
        """
        first = 0
        give_up_at = time.monotonic() + _END_TIMEOUT
        # Under a lock: a second caller waits, and then finds nothing left.
        with self._ending:
            while found := self._adopted():
                first = first or len(found)
                for pid in found:
                    for each in (*platform.tree_below(pid), pid):
                        with contextlib.suppress(OSError):
                            os.kill(each, signal.SIGKILL)
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                if time.monotonic() > give_up_at:
                    break
                time.sleep(_PAUSE)
        return first

    def _adopted(self) -> list[int]:
        children = platform.children(os.getpid())
        with self._lock:
            others = [pid for pid in children if pid not in self._guards]
        return [
            pid
            for pid in others
            if is_adopted(
                self.mark,
                platform.hard_limit(pid),
                platform.marking_value(pid).decode(errors="replace"),
                own_limit=self.own_limit,
            )
        ]

    async def follow_ends(self) -> None:
        """Until cancelled, end adopted processes when a child of this process ends."""
        with trio.open_signal_receiver(signal.SIGCHLD) as ends:
            # First without a signal, in case one came while this did not run.
            await self._end_escapees()
            async for _ in ends:
                await self._end_escapees()

    async def _end_escapees(self) -> None:
        count = await trio.to_thread.run_sync(self.end_adopted)
        if count:
            log.warning("escapees_ended", processes=count)

    async def keep_watcher(self) -> None:
        """Until cancelled, keep a watcher running. Outside of Linux, return at once."""
        if sys.platform != "linux":
            return
        backoff, failures = Backoff(), 0
        while True:
            began_at = trio.current_time()
            try:
                code = await _watched(self.mark)
            except OSError as error:
                log.warning("watcher_not_started", reason=str(error))
            else:
                log.warning("watcher_lost", returncode=code)
            failures = 1 if trio.current_time() - began_at > _STEADY else failures + 1
            await trio.sleep(backoff.delay(failures, 0.0))


async def _watched(mark: Mark) -> int:
    """Run a watcher process until it ends; return its exit status.

    The watcher finds this daemon's processes by `mark`. It ends by itself after the daemon ends.
    """
    reader, writer = os.pipe()
    try:
        wanted = mark.this_life
        numbers = (str(reader), str(wanted.low), str(wanted.high))
        try:
            watcher = await trio.lowlevel.open_process(
                [sys.executable, "-I", "-S", str(_WATCHER), *numbers, wanted.prefix],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={key: os.environ[key] for key in _WATCHER_KEYS if key in os.environ},
                pass_fds=(reader,),
                start_new_session=True,
            )
        finally:
            os.close(reader)
        return await watcher.wait()
    finally:
        os.close(writer)


def _own_limit() -> int | None:
    if sys.platform != "linux":
        return None
    try:
        hard = resource.getrlimit(LIMIT)[1]
    except (OSError, ValueError):
        return None
    return None if hard == resource.RLIM_INFINITY else hard


TREES = Trees()
"""The trees of this process. There is only one set, because the process as a whole adopts orphans.
"""
