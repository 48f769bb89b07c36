"""The error boundary around a few lines that do not await.

For tasks there is `runtime/boundary`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.typing import FilteringBoundLogger

from capd.core.errors import described


@contextmanager
def boundary(name: str, *, log: FilteringBoundLogger) -> Iterator[None]:
    """Run the block; if it raises an error, log that as `task_failed` and go on after the block.

    `name` is what the log calls the block.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the boundary
        log.error("task_failed", task=name, **described(error))
