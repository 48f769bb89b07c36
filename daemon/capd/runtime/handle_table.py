"""Tables by which actors of one process pass objects such as streams to each other.

A message between actors is bytes, and cannot contain a stream. The sender puts the object into a
table under an id, and the message contains that id (docs/design/actors.md).
"""

import threading
from collections import OrderedDict
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class HandleTable(Generic[K, V]):
    """A table of objects that one actor fills and another reads, by the ids in messages."""

    def __init__(self) -> None:
        self._things: dict[K, V] = {}

    def put(self, key: K, thing: V) -> None:
        """Add `thing` under `key`."""
        self._things[key] = thing

    def get(self, key: K) -> V | None:
        """Return the object under `key`; None if there is none."""
        return self._things.get(key)

    def take(self, key: K) -> V | None:
        """Remove and return the object under `key`; None if there is none."""
        return self._things.pop(key, None)


class Offers:
    """Large replies that are passed as objects: the receiver fetches each once, by its number.

    Encoding a catalog of ten thousand capabilities would block the event loop for a tenth of a
    second, and so would decoding it. The object is shared, so nobody may change it.
    """

    _MOST = 16
    """How many replies may wait. A receiver that has given up fetches nothing, so older ones are
    dropped."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._things: OrderedDict[int, object] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, thing: object) -> int:
        """Add `thing`; return its number."""
        with self._lock:
            number = next(self._numbers)
            self._things[number] = thing
            while len(self._things) > self._MOST:
                self._things.popitem(last=False)
        return number

    def take(self, number: int) -> object | None:
        """Remove and return the object under `number`; None if there is none."""
        with self._lock:
            return self._things.pop(number, None)


OFFERS = Offers()
"""The only table of offers in this process. All actors use it, whichever bus they have."""
