"""Limits that a process sets itself before it works on what strangers wrote."""

import resource


def limit_to(kind: int, most: int) -> None:
    """Lower a limit of this process to `most`; one that is lower already stays."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
