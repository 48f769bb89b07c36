"""Ends servers whose process trees use more than their limits."""

import os
from collections.abc import Callable, Sequence

import structlog
import trio

from capd.adapters import platform
from capd.adapters.servers.server_run import ServerRun
from capd.core.servers.tree_limits import Tree, TreeLimits, TreeLooks

log = structlog.get_logger(actor="supervisor")


async def watch_trees(runs: Callable[[], Sequence[ServerRun]], limits: TreeLimits) -> None:
    """Until cancelled, check the process trees of all servers, and end those over their limits."""
    looks: TreeLooks[int] = TreeLooks(limits)
    while True:
        await trio.sleep(looks.pause)
        by_pid = {run.pid: run for run in runs()}
        trees = await trio.to_thread.run_sync(_trees, list(by_pid)) if by_pid else {}
        for pid, excess in looks.look(trees, trio.current_time()).items():
            run = by_pid[pid]
            # The run may have ended during the check, and another one started.
            if run.pid == pid:
                log.warning("tree_over_limit", pid=pid, reason=excess)
                run.end(excess)


def _trees(pids: Sequence[int]) -> dict[int, Tree]:
    """Return what each server's process tree uses, by the server's pid.

    A server's parent is its guard process, which adopts the server's orphaned descendants. A server
    whose guard is gone is left out.
    """
    found: dict[int, Tree] = {}
    for pid in pids:
        guard = platform.parent_pid(pid)
        if guard and platform.parent_pid(guard) == os.getpid():
            found[pid] = Tree(*platform.tree_use(guard))
    return found
