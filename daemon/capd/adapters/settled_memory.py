"""What a daemon does with its memory once something large was made, which stays for long.

Making a catalog's index takes three times what the index takes, and the C library keeps what was
freed. And each full pass of Python's collector looks at every object of the catalog: 140 ms for ten
thousand capabilities, in which no call goes through.
"""

import gc

from capd.adapters import platform

_LARGE_CATALOG = 1000
_YOUNG = 1


def settle_memory(capabilities: int) -> None:
    """Return freed memory to the system. Blocks for some milliseconds, so call it in a thread.

    With many `capabilities`, the collector does not look again at what there is: its objects go
    when the last reference to them goes. A cycle that is dropped later, with an object of this
    moment in it, would stay; catalogs have none.
    """
    if capabilities >= _LARGE_CATALOG:
        gc.collect(_YOUNG)
        gc.freeze()
    platform.trim_memory()
