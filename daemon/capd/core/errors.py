"""The root of capd's exceptions, and what is logged of an exception or a group of them."""

import traceback
from collections.abc import Iterator
from typing import TypeVar

E = TypeVar("E", bound=BaseException)

_TEXT_LIMIT = 300
_MOST_CALLS = 12
"""The most calls of a traceback that are logged: the innermost ones."""


class CapdError(Exception):
    """An error that a caller can act on: its text says what happened, why, and what to do."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield every error in `group` that is not itself a group."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def described(error: BaseException) -> dict[str, str]:
    """Return log fields for `error`: type, text and traceback, never values of variables.

    A group is described by its leaves, because its own text says nothing.
    """
    errors = list(leaves(error)) if isinstance(error, BaseExceptionGroup) else [error]
    text = "; ".join(" ".join(str(each).split()) for each in errors)
    return {
        "error": ", ".join(type(each).__name__ for each in errors),
        "text": text[:_TEXT_LIMIT],
        **_place(errors[0]),
    }


def _place(error: BaseException) -> dict[str, str]:
    """Return the line that raised `error`, and the calls that led there, the innermost last."""
    calls = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    if not calls:
        return {"where": "unknown", "trace": ""}
    file, line, _ = calls[-1]
    # The last part of a path says enough in a line of a log.
    trace = [f"{path.rpartition('/')[2]}:{at} {name}" for path, at, name in calls[-_MOST_CALLS:]]
    return {"where": f"{file}:{line}", "trace": " > ".join(trace)}
