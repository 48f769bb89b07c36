"""The facts by which a prompt hook and the sessions are matched (45-clients, finding 6)."""

from collections.abc import Mapping

from capd.actors.session.session import Curator
from capd.adapters import platform
from capd.core.sessions.client_traits import ClientTraits, traits_of
from capd.core.sessions.linking import Candidate, Hook, Link
from capd_protos import curator as messages

MOST_CLIENTS = 32
"""A hook names its client itself."""


class HookCounts:
    """How many hooks found their session, by client; `capd doctor` tells what that means."""

    def __init__(self) -> None:
        self._counts: dict[str, messages.HookCount] = {}

    def note(self, client: str, found: Link) -> None:
        """Count one hook."""
        if client not in self._counts and len(self._counts) >= MOST_CLIENTS:
            return
        count = self._counts.get(client) or messages.HookCount(client, 0, 0)
        is_linked = found.key is not None
        self._counts[client] = messages.HookCount(
            client,
            count.linked + is_linked,
            count.unlinked + (not is_linked),
            count.reason if is_linked else found.how,
        )

    def listed(self) -> list[messages.HookCount]:
        """Return the counts."""
        return list(self._counts.values())


def hook_of(request: messages.TakeHookTurn, table: Mapping[str, ClientTraits]) -> Hook:
    """Return what is known of a hook."""
    line, _ = traits_of(table, [request.client])
    return Hook(
        request.client,
        request.client_session,
        platform.ancestors(request.peer_pid),
        request.project,
        line,
    )


def candidate_of(curator: Curator, parent_pid: int) -> Candidate:
    """Return what is known of a session."""
    place = curator.place
    return Candidate(
        place.key,
        place.client,
        frozenset(curator.client_sessions),
        parent_pid,
        place.project,
        curator.view.line,
    )
