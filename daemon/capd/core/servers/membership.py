"""The methods by which capd finds all processes of a server, the strongest first.

    namespace   a pid namespace: no process leaves it, and all end when its first process ends
    cgroup      a control group of its own: forked processes stay in it
    sweep       orphans are adopted by the guard (the server's parent process), or by the daemon
                if the guard is dead; if both are dead, inherited marks find the orphans
                (capd_protos/tree_marks.py)
    group       a process group: a process that leaves it is not found

A stronger method is used in addition to the weaker ones below it, never instead.
"""

from typing import Literal

from capd_protos.tree_marks import Mark

Membership = Literal["namespace", "cgroup", "sweep", "group"]


def strongest_method(prefix: tuple[str, ...], *, has_group: bool, has_proc: bool) -> Membership:
    """Return the strongest method by which all processes of a server can be found.

    `prefix` are the words before the server's own argv that start its sandbox. `has_group` says
    that the server has a cgroup of its own, `has_proc` that `/proc` can be read.
    """
    if "--unshare-pid" in prefix or "--unshare-all" in prefix:
        return "namespace"
    if has_group:
        return "cgroup"
    return "sweep" if has_proc else "group"


def is_adopted(mark: Mark, limit: int | None, value: str, *, own_limit: int | None) -> bool:
    """Tell whether an orphan that became the daemon's child belongs to a server.

    Orphans become the daemon's children if the server's guard is dead. A guard marks the processes
    of its server twice (`capd_protos/tree_marks.py`): with an environment variable and with a low
    hard limit of file locks. `mark` is that of all servers of this daemon; `value` and `limit` are
    the orphan's variable and limit. A process may lower that limit but not raise it, so any limit
    below `own_limit`, the daemon's own, is a mark. None means no limit.
    """
    is_lower = limit is not None and (own_limit is None or limit < own_limit)
    return is_lower or value == mark.of_server
