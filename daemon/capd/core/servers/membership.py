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


def way_of(prefix: tuple[str, ...], *, has_group: bool, has_proc: bool) -> Membership:
    """Return the strongest method for a server; `prefix` precedes its own argv."""
    if "--unshare-pid" in prefix or "--unshare-all" in prefix:
        return "namespace"
    if has_group:
        return "cgroup"
    return "sweep" if has_proc else "group"


def is_adopted(mark: Mark, limit: int | None, value: str, *, own_limit: int | None) -> bool:
    """Tell whether an adopted child of the daemon belonged to a server whose guard is dead.

    Processes that the daemon starts for itself have the daemon's own limit. A server's process may
    have lowered it further, so every lower limit counts.
    """
    is_lower = limit is not None and (own_limit is None or limit < own_limit)
    return is_lower or value == mark.of_server
