"""The root of capd's exceptions, and a helper for exception groups."""

from collections.abc import Iterator
from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class CapdError(Exception):
    """An error that a caller can act on: in one line what happened, why and what to do next."""


def leaves(group: BaseExceptionGroup[E]) -> Iterator[E]:
    """Yield every error of `group` that is not a group itself."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
