"""The one place that knows which operating system this is.

Everything else calls these names; Linux has all of them, elsewhere they do what they can.
"""

import sys

if sys.platform == "linux":
    from capd.adapters.platform.linux import (
        become_subreaper,
        descends_from,
        has_terminal,
        keep_large_blocks_apart,
        parent_pid,
        peer_credentials,
        process_start_time,
        rss_bytes,
        set_dumpable,
        trim_memory,
    )
else:
    from capd.adapters.platform.portable import (
        become_subreaper,
        descends_from,
        has_terminal,
        keep_large_blocks_apart,
        parent_pid,
        peer_credentials,
        process_start_time,
        rss_bytes,
        set_dumpable,
        trim_memory,
    )
from capd.adapters.platform.credentials import PeerCredentials
from capd.adapters.platform.guard import descendants

__all__ = [
    "PeerCredentials",
    "become_subreaper",
    "descendants",
    "descends_from",
    "has_terminal",
    "keep_large_blocks_apart",
    "parent_pid",
    "peer_credentials",
    "process_start_time",
    "rss_bytes",
    "set_dumpable",
    "trim_memory",
]
