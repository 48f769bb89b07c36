"""The only package that knows which operating system this is.

All other code calls these names. Linux supports all of them; other systems support some.
"""

import sys

if sys.platform == "linux":
    from capd.adapters.platform.linux import (
        READABLE,
        ancestors,
        available_memory_bytes,
        become_subreaper,
        children,
        has_controlling_terminal,
        has_terminal,
        keep_large_blocks_apart,
        machine_bytes,
        parent_pid,
        peer_credentials,
        proc_pid,
        process_start_time,
        readiness_queue,
        rss_bytes,
        set_dumpable,
        share_one_heap,
        tree_below,
        tree_use,
        trim_memory,
    )
    from capd.adapters.platform.linux_peers import (
        has_ended,
        is_in_own_unit,
        look_at,
        peer_pidfd,
    )
    from capd.adapters.platform.linux_tcp import holders, holds, other_end
    from capd.adapters.platform.watcher import end_marked, hard_limit, marked, marking_value
else:
    from capd.adapters.platform.portable import (
        READABLE,
        ancestors,
        available_memory_bytes,
        become_subreaper,
        children,
        end_marked,
        hard_limit,
        has_controlling_terminal,
        has_terminal,
        keep_large_blocks_apart,
        machine_bytes,
        marked,
        marking_value,
        parent_pid,
        peer_credentials,
        proc_pid,
        process_start_time,
        readiness_queue,
        rss_bytes,
        set_dumpable,
        share_one_heap,
        tree_below,
        tree_use,
        trim_memory,
    )
    from capd.adapters.platform.portable_peers import (
        has_ended,
        holders,
        holds,
        is_in_own_unit,
        look_at,
        other_end,
        peer_pidfd,
    )
from capd.adapters.platform.credentials import NO_DESCRIPTORS, PeerCredentials, SocketOptions
from capd.adapters.platform.guard import descendants
from capd.adapters.platform.readiness import ReadinessQueue
from capd.adapters.platform.tcp_ends import NotToldError, TcpEnd

__all__ = [
    "NO_DESCRIPTORS",
    "READABLE",
    "NotToldError",
    "PeerCredentials",
    "ReadinessQueue",
    "SocketOptions",
    "TcpEnd",
    "ancestors",
    "available_memory_bytes",
    "become_subreaper",
    "children",
    "descendants",
    "end_marked",
    "hard_limit",
    "has_controlling_terminal",
    "has_ended",
    "has_terminal",
    "holders",
    "holds",
    "is_in_own_unit",
    "keep_large_blocks_apart",
    "look_at",
    "machine_bytes",
    "marked",
    "marking_value",
    "other_end",
    "parent_pid",
    "peer_credentials",
    "peer_pidfd",
    "proc_pid",
    "process_start_time",
    "readiness_queue",
    "rss_bytes",
    "set_dumpable",
    "share_one_heap",
    "tree_below",
    "tree_use",
    "trim_memory",
]
