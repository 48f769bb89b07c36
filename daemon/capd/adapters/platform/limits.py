"""Limits that a process sets for itself before it works on other people's texts."""

import resource


def limit_to(kind: int, most: int) -> None:
    """Lower a limit of this process to `most`, unless it is lower already."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
