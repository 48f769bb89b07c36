"""The facts by which a prompt hook and the sessions are matched (45-clients, finding 6)."""

from capd.actors.curator import Curator
from capd.adapters import platform
from capd.core.sessions.linking import Candidate, Hook
from capd_protos import curator as messages


def hook_of(request: messages.TakeHookTurn) -> Hook:
    """Return what is known of a hook."""
    return Hook(
        request.client,
        request.client_session,
        platform.ancestors(request.peer_pid),
        request.project,
    )


def candidate_of(curator: Curator, parent_pid: int) -> Candidate:
    """Return what is known of a session."""
    place = curator.place
    return Candidate(
        place.key, place.client, frozenset(curator.client_sessions), parent_pid, place.project
    )
