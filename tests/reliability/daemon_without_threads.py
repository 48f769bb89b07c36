"""The daemon on a machine that starts no thread while a file exists: `... FILE -- what would run`.

So a user's limit of processes (RLIMIT_NPROC, pids.max) is reached at a moment that a test chooses.
A thread that waits for work would still be used, so none is used.
"""

import sys
from pathlib import Path
from typing import Any

from trio._core import _thread_cache

from capd.main import main

FULL = Path(sys.argv[1])
start = _thread_cache.ThreadCache.start_thread_soon


def start_unless_full(self: _thread_cache.ThreadCache, *args: Any, **options: Any) -> None:
    if FULL.exists():
        raise RuntimeError("can't start new thread")
    start(self, *args, **options)


_thread_cache.ThreadCache.start_thread_soon = start_unless_full  # type: ignore[method-assign]
sys.exit(main(["daemon", "run"]))
