"""The error boundary around one connection's or one server's task.

Without it, an error in one of them would end all others, as errors do in a nursery
(docs/design/actors.md).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

from structlog.typing import FilteringBoundLogger

Ts = TypeVarTuple("Ts")

_TEXT_LIMIT = 300


def described(error: BaseException) -> dict[str, str]:
    """Return log fields for `error`: type, text and place, never the values around it.

    A group is described by its leaves, because its own text says nothing.
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
    # except*: a nursery may raise an error and a Cancelled in one group, and the latter must go on.
    try:
        await fn(*args)
    except* Exception as errors:  # noqa: BLE001 - the boundary
        log.error("task_failed", task=name, **described(errors))
