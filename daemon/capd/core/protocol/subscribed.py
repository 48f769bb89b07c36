"""Which server tells a session of which resource, for as long as the session wants it.

An instance ends and another one takes its place: what was subscribed at the one is subscribed at
the next, until the session says that it wants it no more.
"""

from collections.abc import Iterable, Mapping

from capd_protos.types import ServerIdentity


class Subscribed:
    """The resources that one session wants to hear of, each by the server that has it."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerIdentity] = {}

    def add(self, uri: str, server: ServerIdentity) -> None:
        """Note that `server` tells of `uri`."""
        self._servers[uri] = server

    def discard(self, uri: str) -> None:
        """Note that the session wants to hear of `uri` no more."""
        self._servers.pop(uri, None)

    def at(self, server: ServerIdentity) -> list[str]:
        """Return what `server` is to tell of."""
        return [uri for uri, each in self._servers.items() if each == server]

    def among(self, uris: Iterable[str]) -> dict[str, ServerIdentity]:
        """Return which servers tell of `uris`, those that one tells of."""
        return {uri: self._servers[uri] for uri in uris if uri in self._servers}

    def restore(self, servers: Mapping[str, ServerIdentity]) -> None:
        """Take over what a session of this key wanted to hear of."""
        self._servers.update(servers)

    @property
    def servers(self) -> set[ServerIdentity]:
        """Every server that is to tell of something."""
        return set(self._servers.values())
