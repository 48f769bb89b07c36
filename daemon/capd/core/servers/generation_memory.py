"""Remembers which generations of MCP each server speaks, to choose the one to try first.

The generations are the handshake one (versions until 2025-11-25) and the stateless one
(2026-07-28).

    a start tries first    it ends with     remembered from then on
    stateless              stateless        BOTH; STATELESS stays STATELESS
    stateless              the handshake    HANDSHAKE
    the handshake          stateless        STATELESS
    the handshake          the handshake    as before

A start as in the last row proves nothing, because most servers of the stateless generation accept
both. What is remembered also decides which sessions share an instance
(docs/design/hostile-servers.md): a stateless server infers nothing from its connection, so all
sessions may share it.
"""

from collections.abc import Mapping
from enum import Enum

from capd_protos.types import ServerIdentity, ServerSpec


class SpokenGenerations(Enum):
    """The generations that a server has proved to speak."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"
    BOTH = "both"
    """The stateless generation, and perhaps the handshake generation too."""


MOST_SERVERS = 2000
PROBE_PATIENCE = 3.0
"""Seconds after which a process that does not answer `server/discover` also gets `initialize`. Some
servers answer no request before their handshake."""
SURE_PATIENCE = 30.0
"""The same limit for servers that are expected to answer: those that were seen to speak the
stateless generation, and those over HTTP, where every request has a response. It is less than a
start may take, because another version of such a server may speak only the handshake generation."""


class GenerationMemory:
    """The generations that each server was seen to speak."""

    def __init__(self) -> None:
        # In the order of their last start.
        self._seen: dict[ServerIdentity, SpokenGenerations] = {}

    def restore(self, written: Mapping[ServerIdentity, str]) -> None:
        """Restore the state that `written` returned; unknown values are ignored."""
        kept = {SpokenGenerations.STATELESS.value, SpokenGenerations.BOTH.value}
        self._seen = {
            each: SpokenGenerations(seen) for each, seen in written.items() if seen in kept
        }

    def written(self) -> dict[ServerIdentity, str]:
        """Return the state to save: a word for each server.

        HANDSHAKE is not saved: another version of the server may speak both.
        """
        known = {
            each: seen.value
            for each, seen in self._seen.items()
            if seen is not SpokenGenerations.HANDSHAKE
        }
        return dict(list(known.items())[-MOST_SERVERS:])

    def note_start(
        self, server: ServerIdentity, *, tried_stateless: bool, is_stateless: bool
    ) -> bool:
        """Note that a server has started, and which generation of MCP it speaks.

        `tried_stateless` says that the stateless generation was tried first. Return whether
        `written` has changed.
        """
        before = self.written()
        seen = self._seen.pop(server, None)
        if is_stateless and not tried_stateless:
            seen = SpokenGenerations.STATELESS
        elif is_stateless:
            seen = seen if seen is SpokenGenerations.STATELESS else SpokenGenerations.BOTH
        elif tried_stateless:
            seen = SpokenGenerations.HANDSHAKE
        if seen is not None:
            self._seen[server] = seen
        return self.written() != before

    def is_tried_stateless(
        self, server: ServerIdentity, *, by_stateless: bool, has_failed: bool
    ) -> bool:
        """Tell whether to try the stateless generation of MCP first at a server's next start.

        `by_stateless` says that the client speaks the stateless generation, `has_failed` that the
        server failed when it was started last.
        """
        seen = self._seen.get(server)
        if seen is None:
            # The attempt to speak statelessly may have caused the failure.
            return by_stateless and not has_failed
        return self._starts_stateless(seen, by_stateless=by_stateless)

    def probe_patience(self, server: ServerIdentity, transport: str) -> float:
        """Return for how many seconds a starting server may take to answer `server/discover`."""
        is_known = self._seen.get(server) in {SpokenGenerations.STATELESS, SpokenGenerations.BOTH}
        return SURE_PATIENCE if is_known or transport == "http" else PROBE_PATIENCE

    def scope(self, server: ServerSpec, identity: ServerIdentity, *, by_stateless: bool) -> str:
        """Return which sessions share an instance: the scope of the definition, or `shared`.

        The result can be `shared` only for an instance that is started in the stateless generation
        of MCP. `by_stateless` says that the client speaks that generation.
        """
        seen = self._seen.get(identity)
        is_open = not server.is_scope_fixed and (
            server.scope == "project" or server.transport != "stdio"
        )
        if is_open and seen and self._starts_stateless(seen, by_stateless=by_stateless):
            return "shared"
        return server.scope

    @staticmethod
    def _starts_stateless(seen: SpokenGenerations, *, by_stateless: bool) -> bool:
        # A server that knows both is started in the client's generation, as without capd.
        return seen is SpokenGenerations.STATELESS or (
            seen is SpokenGenerations.BOTH and by_stateless
        )
