"""The root of capd's exceptions, and a helper for exception groups."""

from collections.abc import Iterator
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class CapdError(Exception):
    """An error that a caller can act on: its text says what happened, why, and what to do."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield every error in `group` that is not itself a group."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
