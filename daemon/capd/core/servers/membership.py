"""How capd knows which processes belong to a server, and which method works on this machine.

    namespace   a pid namespace: no process leaves it, and all end with its first one
    cgroup      a control group of its own: forked processes stay in it
    sweep       the guard, then the daemon, adopt orphans; inherited marks find the
                processes that lost both (capd_protos/tree_marks.py)
    group       a process group: a process that leaves it is not found

A stronger method is used in addition to the weaker ones below it, never instead.
"""

from typing import Literal

from capd_protos.tree_marks import Mark

Membership = Literal["namespace", "cgroup", "sweep", "group"]


def strongest_method(prefix: tuple[str, ...], *, has_group: bool, has_proc: bool) -> Membership:
    """Return the strongest method for a server; `prefix` precedes its own argv."""
    if "--unshare-pid" in prefix or "--unshare-all" in prefix:
        return "namespace"
    if has_group:
        return "cgroup"
    return "sweep" if has_proc else "group"


def is_adopted(mark: Mark, limit: int | None, value: str, *, own_limit: int | None) -> bool:
    """Tell whether an orphan that the daemon inherited came from a server whose guard is dead.

    A guard marks its server's processes twice: with a variable (`value`), and with a low hard limit
    of file locks (`limit`; see `capd_protos/tree_marks.py`). A process may lower that limit and not
    raise it, so any limit below the daemon's own (`own_limit`) is a mark.
    """
    is_lower = limit is not None and (own_limit is None or limit < own_limit)
    return is_lower or value == mark.of_server
