"""The daemon, without Python's search for cycles: it counts its objects when it gets SIGUSR2.

    counting_daemon.py FILE -- what would have run it

The counts by type go to FILE, whole or not at all.
"""

import gc
import json
import signal
import sys
from collections import Counter
from pathlib import Path

from capd import daemon
from capd.main import main

FILE = Path(sys.argv[1])


def count(*_: object) -> None:
    kinds = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())
    new = FILE.with_name("counting")
    new.write_text(json.dumps(kinds))
    new.replace(FILE)


gc.disable()
daemon._rest_the_collector = lambda: None
signal.signal(signal.SIGUSR2, count)
sys.exit(main(["daemon", "run"]))
