"""The root of every error that capd raises on purpose, and how to look into groups of them."""

from collections.abc import Iterator
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class CapdError(Exception):
    """Something a caller can act on; its text says what, why and what to do next, in one line."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield every error of `group` that is not a group itself."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
