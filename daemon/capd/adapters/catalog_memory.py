"""Reduces the daemon's memory after it has built something large, such as a catalog.

Building a catalog's index needs three times the memory of the index, and the C library keeps what
was freed. Moreover, each full pass of Python's garbage collector visits every object of the
catalog: 140 ms for ten thousand capabilities, during which every call waits.
"""

import gc

from capd.adapters import platform

_LARGE_CATALOG = 1000
_YOUNG = 1


def trim_after_load(capabilities: int) -> None:
    """Return freed memory to the system. Blocks for some milliseconds, so call it in a thread.

    `capabilities` is the number of capabilities in the catalog. If there are many, the garbage
    collector ignores all present objects from now on: they are freed only with their last
    reference. A reference cycle among them would stay for ever; catalogs have none.
    """
    if capabilities >= _LARGE_CATALOG:
        gc.collect(_YOUNG)
        gc.freeze()
    platform.trim_memory()
