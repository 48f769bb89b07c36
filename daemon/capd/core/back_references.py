"""How a part calls its owner back without keeping it alive.

An owner refers to its parts. If a part also referred to its owner, both would stay in memory after
their end until the garbage collector finds the cycle, which it rarely does in the daemon: a
thousand ended sessions were 8 MB of garbage.
"""

from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar
from weakref import WeakMethod

P = ParamSpec("P")
R = TypeVar("R")


class _WeakCall(Generic[P, R]):
    __slots__ = ("_reference",)

    def __init__(self, method: Callable[P, R]) -> None:
        self._reference = WeakMethod(method)

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        alive = self._reference()
        if alive is None:
            raise ReferenceError("the owner of this method is gone")
        return alive(*arguments, **options)


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """Return a callable that calls a bound `method` without keeping its object alive.

    Calling it when the object is gone raises ReferenceError, as a weak proxy does. So a task that
    works for an owner must keep a reference to it.
    """
    return _WeakCall(method)
