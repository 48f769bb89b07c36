"""Lets a part of an object call its owner without keeping the owner alive.

An owner refers to its parts. If a part also referred to its owner, both would stay in memory after
their end until the garbage collector finds the cycle, which it rarely does in the daemon: a
thousand ended sessions left 8 MB of garbage.
"""

from collections.abc import Callable
from types import MethodType
from typing import Generic, ParamSpec, TypeVar
from weakref import ref

P = ParamSpec("P")
R = TypeVar("R")


# A `weakref.WeakMethod` takes half a kilobyte, and a session would have five.
class _WeakCall(Generic[P, R]):
    __slots__ = ("_function", "_owner")

    def __init__(self, method: Callable[P, R]) -> None:
        assert isinstance(method, MethodType), "only a bound method has an owner"
        # Without a callback, Python returns the same reference for the same object.
        self._owner = ref(method.__self__)
        self._function: Callable[..., R] = method.__func__

    def __call__(self, *arguments: P.args, **options: P.kwargs) -> R:
        owner = self._owner()
        if owner is None:
            raise ReferenceError("the owner of this method is gone")
        return self._function(owner, *arguments, **options)


def weakly(method: Callable[P, R]) -> Callable[P, R]:
    """Return a callable that calls a bound `method` without keeping its object alive.

    When the object is gone, a call raises ReferenceError, as a call through a weak proxy does. So a
    task that works for an owner must itself keep a reference to the owner.
    """
    return _WeakCall(method)
