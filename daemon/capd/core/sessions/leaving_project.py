"""Switches off what a session uses of a project that is no longer trusted."""

from capd.core.sessions.session import SessionState, Step
from capd_protos.types import CapabilityId


def capabilities_of(state: SessionState, project: str) -> list[CapabilityId]:
    """Return the active capabilities that use a server of `project`, a path without symlinks."""
    theirs = {held.identity for held in state.servers if held.spec.project == project}
    return [each.id for each in state.active.activations if theirs.intersection(each.servers)]


def without_project(state: SessionState, project: str) -> Step:
    """Switch off every capability, single tool and pin that needs a server of `project`."""
    step = Step()
    for capability in capabilities_of(state, project):
        step = step.then(state.deactivate(capability))
    for held in state.servers:
        if held.spec.project == project:
            # Single tools and pins are removed once their server lists no tool.
            step = step.then(state.update_server(held.identity, held.instance, ()))
    return step
