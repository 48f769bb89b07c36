"""In-process handles that a message can only name: streams and server connections.

A message between actors is bytes. Where two actors share a process and one must hand the other
something live, it puts it here under an id, and the message carries the id (docs/design/actors.md).
"""

from collections.abc import Hashable
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
