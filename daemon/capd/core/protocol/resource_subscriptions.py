"""The resources that a session has subscribed to, and their servers.

Whenever the running instance of a server is replaced, the caller subscribes again to the resources
of that server.
"""

from collections.abc import Iterable, Mapping

from capd_protos.types import ServerIdentity


class ResourceSubscriptions:
    """The subscribed resources of one session, each with the server that has it."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerIdentity] = {}

    def add(self, uri: str, server: ServerIdentity) -> None:
        """Note that the session is subscribed to `uri`, which `server` has."""
        self._servers[uri] = server

    def discard(self, uri: str) -> None:
        """Note that the session unsubscribed from `uri`."""
        self._servers.pop(uri, None)

    def at(self, server: ServerIdentity) -> list[str]:
        """Return the subscribed resources that `server` has."""
        return [uri for uri, each in self._servers.items() if each == server]

    def among(self, uris: Iterable[str]) -> dict[str, ServerIdentity]:
        """Return the servers of those `uris` that the session has subscribed to."""
        return {uri: self._servers[uri] for uri in uris if uri in self._servers}

    def restore(self, servers: Mapping[str, ServerIdentity]) -> None:
        """Restore the subscriptions of an earlier session with the same key."""
        self._servers.update(servers)

    @property
    def servers(self) -> set[ServerIdentity]:
        """Every server with a resource that the session has subscribed to."""
        return set(self._servers.values())
