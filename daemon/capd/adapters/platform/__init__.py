"""The one place that knows which operating system this is.

Everything else calls these names; Linux has all of them, elsewhere they do what they can.
"""

import sys

if sys.platform == "linux":
    from capd.adapters.platform.linux import (
        become_subreaper,
        has_terminal,
        keep_large_blocks_apart,
        machine_bytes,
        parent_pid,
        peer_credentials,
        proc_pid,
        process_start_time,
        rss_bytes,
        set_dumpable,
        tree_use,
        trim_memory,
    )
else:
    from capd.adapters.platform.portable import (
        become_subreaper,
        has_terminal,
        keep_large_blocks_apart,
        machine_bytes,
        parent_pid,
        peer_credentials,
        proc_pid,
        process_start_time,
        rss_bytes,
        set_dumpable,
        tree_use,
        trim_memory,
    )
from capd.adapters.platform.credentials import PeerCredentials
from capd.adapters.platform.guard import descendants

__all__ = [
    "PeerCredentials",
    "ancestors",
    "become_subreaper",
    "descendants",
    "descends_from",
    "has_terminal",
    "keep_large_blocks_apart",
    "machine_bytes",
    "parent_pid",
    "peer_credentials",
    "proc_pid",
    "process_start_time",
    "rss_bytes",
    "set_dumpable",
    "tree_use",
    "trim_memory",
]


def ancestors(pid: int) -> list[int]:
    """Return the processes above `pid`, the nearest first, down to process 1."""
    found: list[int] = []
    parent = parent_pid(pid)
    while parent and parent not in found:
        found.append(parent)
        parent = parent_pid(parent)
    return found


def descends_from(pid: int, ancestor: int) -> bool:
    """Tell whether `ancestor` started a process; one that is gone is not vouched for either."""
    is_gone = pid <= 0 or process_start_time(pid) is None
    return is_gone or pid == ancestor or ancestor in ancestors(pid)
