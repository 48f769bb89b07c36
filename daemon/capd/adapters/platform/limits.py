"""Limits that a process sets for itself before it works on other people's texts."""

import resource


def limit_to(kind: int, most: int) -> None:
    """Set a limit of this process, soft and hard, to `most`, or to its hard limit if that is lower.

    `kind` is one of `resource.RLIMIT_...`.
    """
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
