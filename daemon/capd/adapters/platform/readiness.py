"""The interface of an epoll object: it tells which of many sockets can be read."""

from typing import Protocol


class ReadinessQueue(Protocol):
    """A set of sockets to wait for. Its own descriptor is readable while one of them is."""

    def fileno(self) -> int:
        """Return the set's own descriptor."""
        ...

    def register(self, fd: int, eventmask: int, /) -> None:
        """Add a socket to the set; `eventmask` says which events to wait for."""
        ...

    def unregister(self, fd: int, /) -> None:
        """Remove a socket from the set."""
        ...

    def poll(self, timeout: float | None, /) -> list[tuple[int, int]]:
        """Return the sockets of the set that can be read or are broken, each with its events."""
        ...

    def close(self) -> None:
        """Close the set's own descriptor."""
        ...
