"""What a session gives up when nobody agrees any more to what its project's files define."""

from capd.core.sessions.session import SessionState, Step
from capd_protos.types import CapabilityId


def resting_on(state: SessionState, project: str) -> list[CapabilityId]:
    """Return the active capabilities that a server of `project` serves; `project` is real."""
    theirs = {held.identity for held in state.servers if held.spec.project == project}
    return [each.id for each in state.active.activations if theirs.intersection(each.servers)]


def without_project(state: SessionState, project: str) -> Step:
    """Take off what rests on a server of `project`: capabilities, single tools and pins."""
    step = Step()
    for capability in resting_on(state, project):
        step = step.then(state.deactivate(capability))
    for held in state.servers:
        if held.spec.project == project:
            # Single tools and pins are what is left: they go with what the server lists.
            step = step.then(state.server_lists(held.identity, held.instance, ()))
    return step
