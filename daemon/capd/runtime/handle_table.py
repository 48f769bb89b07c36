"""In-process handles that a message can only name: streams and server connections.

A message between actors is bytes. Where two actors share a process and one must hand the other
something live, it puts it here under an id, and the message carries the id (docs/design/actors.md).
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class HandleTable(Generic[K, V]):
    """A table that one actor fills and another reads."""

    def __init__(self) -> None:
        self._things: dict[K, V] = {}

    def put(self, key: K, thing: V) -> None:
        """Offer `thing` under `key`."""
        self._things[key] = thing

    def get(self, key: K) -> V | None:
        """Return what is offered under `key`."""
        return self._things.get(key)

    def take(self, key: K) -> V | None:
        """Return what is offered under `key` and offer it no longer."""
        return self._things.pop(key, None)


class Offers:
    """Large replies between actors of this process, each taken once by its number.

    A catalog of ten thousand capabilities as bytes holds up the loop for a tenth of a second when
    it is written and as long again when it is read, and is a copy for each who asks. What is
    offered is shared, so nobody may change it.
    """

    _MOST = 16
    """Who gave up takes nothing, so the oldest are dropped."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._things: OrderedDict[int, object] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, thing: object) -> int:
        """Offer `thing`; return its number."""
        with self._lock:
            number = next(self._numbers)
            self._things[number] = thing
            while len(self._things) > self._MOST:
                self._things.popitem(last=False)
        return number

    def take(self, number: int) -> object | None:
        """Return what is offered under `number`, and offer it no longer."""
        with self._lock:
            return self._things.pop(number, None)


OFFERS = Offers()
"""Of this process: an actor may have a bus of its own."""
