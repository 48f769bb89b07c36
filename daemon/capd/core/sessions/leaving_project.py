"""Removes what a session has from a project whose trust was revoked."""

from capd.core.sessions.session import SessionState, Step
from capd_protos.types import CapabilityId


def resting_on(state: SessionState, project: str) -> list[CapabilityId]:
    """Return the active capabilities with a server of `project`, which is a real path."""
    theirs = {held.identity for held in state.servers if held.spec.project == project}
    return [each.id for each in state.active.activations if theirs.intersection(each.servers)]


def without_project(state: SessionState, project: str) -> Step:
    """Remove everything that needs a server of `project`: capabilities, single tools and pins."""
    step = Step()
    for capability in resting_on(state, project):
        step = step.then(state.deactivate(capability))
    for held in state.servers:
        if held.spec.project == project:
            # Single tools and pins are left; they go when the server lists nothing.
            step = step.then(state.server_lists(held.identity, held.instance, ()))
    return step
