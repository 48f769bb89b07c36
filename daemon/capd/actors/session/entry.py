"""A session as the status shows it, by its state alone."""

from capd.core.sessions.session import SessionState
from capd.core.sessions.session_place import SessionPlace
from capd.core.sessions.session_view import SessionView
from capd_protos import curator as messages
from capd_protos.types import CapabilityId, CapabilityName


def session_entry(
    place: SessionPlace, state: SessionState, view: SessionView
) -> messages.SessionEntry:
    """Return what there is to say of a session, without its connection."""
    return messages.SessionEntry(
        key=place.key,
        client=place.client,
        pid=0,
        project=place.project,
        mode=view.plan.mode,
        is_connected=False,
        age=0.0,
        active=[*_capabilities(state), *_single_tools(state)],
        cap=state.active.cap,
        surface=len(state.surface),
        available=state.available,
        surface_chars=len(state.surface.listing()),
        tool_cap=state.active.tool_cap,
        mode_reason=view.reason,
        unlisted=len(state.surface.shown) - len(state.surface.listed),
        parent=place.parent,
        calls=state.active.uses,
        client_title=view.traits.title,
        client_line=view.line,
    )


def _capabilities(state: SessionState) -> list[messages.ActiveEntry]:
    return [
        messages.ActiveEntry(
            "capability" if activation.takes_slot else "dependencies",
            activation.id,
            activation.last_used_at,
            list(state.tools_of(activation.id)),
        )
        for activation in state.active.activations
    ]


def _single_tools(state: SessionState) -> list[messages.ActiveEntry]:
    entries: list[messages.ActiveEntry] = []
    for grant, used_at in state.active.tools.items():
        name, held = state.surface.names[grant], state.held(grant.server)
        assert held is not None
        id_ = CapabilityId(held.spec.tap, CapabilityName(name))
        entries.append(messages.ActiveEntry("tool", id_, used_at, [name]))
    return entries
