"""An error boundary around the task of one connection, request or server.

In a nursery an error in one task cancels all others. The boundary logs the error instead
(docs/design/actors.md).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from structlog.typing import FilteringBoundLogger

Ts = TypeVarTuple("Ts")

_TEXT_LIMIT = 300


def described(error: BaseException) -> dict[str, str]:
    """Return log fields for `error`: its type, its text and where it was raised.

    An exception group is described by the errors in it.
    """
    leaves = list(_leaves(error))
    text = "; ".join(" ".join(str(leaf).split()) for leaf in leaves)
    return {
        "error": ", ".join(type(leaf).__name__ for leaf in leaves),
        "text": text[:_TEXT_LIMIT],
        "where": _where(leaves[0]),
    }


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    if trace is None:
        return "unknown"
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


async def contained(
    name: str,
    fn: Callable[[*Ts], Awaitable[object]],
    *args: *Ts,
    log: FilteringBoundLogger,
) -> None:
    """Run `fn(*args)`. An error is logged as `task_failed` and goes no further."""
    # `except*`: a nursery may raise an error and a Cancelled in one group, and the Cancelled
    # must not be caught.
    try:
        await fn(*args)
    except* Exception as errors:  # noqa: BLE001 - the boundary
        log.error("task_failed", task=name, **described(errors))
