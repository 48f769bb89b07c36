"""Remembers which generations each server speaks, and which to try at its next start.

    unknown ──answered a stateless client statelessly──> BOTH ──declined the handshake──> STATELESS
       └──answered it with a handshake alone──> HANDSHAKE

A start with a handshake proves nothing: most servers of the stateless generation know both. The
known generation decides which is tried first, and therefore which sessions share the instance
(docs/design/hostile-servers.md): a stateless server infers nothing from its connection, so all
sessions may use it.
"""

from collections.abc import Mapping
from enum import Enum

from capd_protos.types import ServerIdentity, ServerSpec


class Speaks(Enum):
    """What a server was seen to speak."""

    HANDSHAKE = "handshake"
    STATELESS = "stateless"
    BOTH = "both"
    """The stateless generation, and perhaps the handshake generation too."""


MOST_SERVERS = 2000


class GenerationMemory:
    """The generations that each server was seen to speak."""

    def __init__(self) -> None:
        # In the order of their last start.
        self._seen: dict[ServerIdentity, Speaks] = {}

    def restore(self, written: Mapping[ServerIdentity, str]) -> None:
        """Restore the saved state."""
        kept = {Speaks.STATELESS.value, Speaks.BOTH.value}
        self._seen = {each: Speaks(seen) for each, seen in written.items() if seen in kept}

    def written(self) -> dict[ServerIdentity, str]:
        """Return the state to save.

        HANDSHAKE is not saved: another version of the server may speak both.
        """
        known = {
            each: seen.value for each, seen in self._seen.items() if seen is not Speaks.HANDSHAKE
        }
        return dict(list(known.items())[-MOST_SERVERS:])

    def note_start(
        self, server: ServerIdentity, *, tried_stateless: bool, is_stateless: bool
    ) -> None:
        """Note which generation a server spoke, and which one was tried first."""
        seen = self._seen.pop(server, None)
        if is_stateless and not tried_stateless:
            seen = Speaks.STATELESS
        elif is_stateless:
            seen = seen if seen is Speaks.STATELESS else Speaks.BOTH
        elif tried_stateless:
            seen = Speaks.HANDSHAKE
        if seen is not None:
            self._seen[server] = seen

    def is_tried_stateless(
        self, server: ServerIdentity, *, by_stateless: bool, has_failed: bool
    ) -> bool:
        """Tell whether this client's start of the server tries the stateless generation first."""
        seen = self._seen.get(server)
        if seen is None:
            # A failed run may have failed because of the probe.
            return by_stateless and not has_failed
        return self._starts_stateless(seen, by_stateless=by_stateless)

    def scope(self, server: ServerSpec, identity: ServerIdentity, *, by_stateless: bool) -> str:
        """Return the scope of an instance; `by_stateless` says that its client is stateless."""
        seen = self._seen.get(identity)
        is_open = not server.is_scope_fixed and (
            server.scope == "project" or server.transport != "stdio"
        )
        if is_open and seen and self._starts_stateless(seen, by_stateless=by_stateless):
            return "shared"
        return server.scope

    @staticmethod
    def _starts_stateless(seen: Speaks, *, by_stateless: bool) -> bool:
        # One that knows both meets a client in the client's own generation, as it would without
        # capd.
        return seen is Speaks.STATELESS or (seen is Speaks.BOTH and by_stateless)
