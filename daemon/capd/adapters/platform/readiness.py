"""The interface of an epoll object: it tells which of many sockets can be read."""

from typing import Protocol


class ReadinessQueue(Protocol):
    """A set of sockets to wait for. Its own descriptor is readable while one of them is."""

    def fileno(self) -> int:
        """Return the set's own descriptor."""
        ...

    def register(self, fd: int, eventmask: int, /) -> None:
        """Wait for a socket."""
        ...

    def unregister(self, fd: int, /) -> None:
        """Stop waiting for a socket."""
        ...

    def poll(self, timeout: float | None, /) -> list[tuple[int, int]]:
        """Return the sockets that can be read, or are broken, each with what it is ready for."""
        ...

    def close(self) -> None:
        """Close the set's own descriptor."""
        ...
