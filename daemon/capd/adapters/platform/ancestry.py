"""Whether one process was started by another, over however many between them."""

from collections.abc import Callable

MOST_GENERATIONS = 4096


def is_below(pid: int, ancestor: int, parent_pid: Callable[[int], int | None]) -> bool:
    """Tell whether `pid` is `ancestor` or below it; so is one that is gone, or has no number.

    capd's guards adopt what their servers leave behind, so that a detached one is found as well.
    """
    if pid <= 0:
        return True
    for _ in range(MOST_GENERATIONS):
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
        parent = parent_pid(pid)
        if parent is None:
            return True
        pid = parent
    return True
