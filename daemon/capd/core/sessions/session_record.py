"""The saved record of a session, so that its key restores everything (docs/design/surface.md).

A record outlives its daemon. It has definitions but no instances: servers are started again when
they are needed. It contains a digest of the resume token, and no secrets, because definitions have
placeholders.
"""

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from capd.core.protocol.generations import members_or_none
from capd.core.sessions.active_set import Activation, Grant
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState
from capd_protos.types import (
    CapabilityId,
    CapabilitySpec,
    ServerIdentity,
    ServerSpec,
    SessionKey,
    ToolDefinition,
    ToolName,
    WireName,
)

RETENTION = 24 * 3600.0
"""Seconds for which a session is kept after it was last saved."""
VERSION = 1


class SavedGrant(msgspec.Struct, frozen=True, array_like=True):
    """A grant, with the permanent name of its tool."""

    server: ServerIdentity
    tool: ToolName
    name: WireName = WireName("")


class SavedActivation(msgspec.Struct, frozen=True):
    """A capability that is on."""

    spec: CapabilitySpec
    servers: list[ServerIdentity]
    grants: list[SavedGrant]
    last_used_at: float


class SavedServer(msgspec.Struct, frozen=True):
    """A server that an activation needs, with the tools that it listed last."""

    spec: ServerSpec
    identity: ServerIdentity
    tools: list[ToolDefinition]
    via: CapabilityId | None = None


class SavedTool(msgspec.Struct, frozen=True, array_like=True):
    """A tool that is on by itself."""

    server: ServerIdentity
    tool: ToolName
    last_used_at: float


class SavedView(msgspec.Struct, frozen=True):
    """How the client sees the session, and the facts on which that was decided."""

    mode: str
    reason: str
    client: str
    """The name that the client gave on the socket."""
    is_stateless: bool = False
    has_deferred: bool = True


class SessionRecord(msgspec.Struct, frozen=True):
    """Everything that is saved of one session."""

    key: SessionKey
    resume_digest: str
    saved_at: float
    """Seconds since the epoch."""
    activations: list[SavedActivation]
    servers: list[SavedServer]
    surface: list[SavedGrant]
    """The listed tools, in order."""
    names: list[SavedGrant]
    """Every name that was ever assigned; a tool keeps its name."""
    version: int = VERSION
    subscriptions: dict[str, ServerIdentity] = {}
    """Which server reports which resource, for a client of the handshake generation."""
    tools: list[SavedTool] = []
    """The tools that are on by themselves, in the order of their activation."""
    is_routed: bool | None = None
    """Whether its messages switch capabilities on, if the session has its own setting."""
    memories: list[str] = []
    """The keys of the memories that its conversation got."""
    memory_tokens: int = 0
    conversation: str = ""
    """The client's id of the conversation that got the memories."""
    is_bootstrapped: bool = False
    """Whether it got the project's bootstrap files."""
    is_index_told: bool = False
    """Whether it got the index from a hook."""
    view: SavedView | None = None
    """Set if the installed tools decided the mode, which then stays the same for the session."""
    tasks: dict[str, list[ServerIdentity]] = {}
    """The servers that have a task of the client's, by the task's id."""
    apps: list[dict[str, ServerIdentity]] = []
    """The server of each app, by its page: where its tool was called, and where the page was read.
    """
    digest: str = ""
    """Digest of the bytes before it in the file, so it must stay the last field. Empty in a record
    of an earlier capd, and everywhere outside a file."""


def token_digest(resume: str) -> str:
    """Return the digest under which a resume token is saved."""
    return hashlib.sha256(resume.encode()).hexdigest()


def may_resume(record: SessionRecord, resume: str) -> bool:
    """Tell whether a client with this token, or with none, may have the session.

    Nobody holds a session that is only saved, so its key is enough. A token that is given must be
    its last one (docs/design/trust.md).
    """
    return not resume or hmac.compare_digest(token_digest(resume), record.resume_digest)


def has_anything(record: SessionRecord) -> bool:
    """Tell whether there is anything to restore for a session."""
    was_told = bool(record.memories) or record.is_bootstrapped or record.is_index_told
    is_on = bool(record.activations or record.tools)
    return is_on or was_told or record.is_routed is not None


def is_kept(record: SessionRecord, now: float) -> bool:
    """Tell whether a record is still valid; a clock that was set back does not make it old."""
    return record.version == VERSION and now - record.saved_at < RETENTION


def recorded(
    key: SessionKey,
    state: SessionState,
    resume: str,
    now: float,
    subscriptions: Mapping[str, ServerIdentity] | None = None,
) -> SessionRecord:
    """Return the record of a session."""
    return SessionRecord(
        key=key,
        resume_digest=token_digest(resume),
        saved_at=now,
        activations=[
            SavedActivation(
                state.spec(activation.id),
                list(activation.servers),
                [SavedGrant(grant.server, grant.tool) for grant in activation.grants],
                activation.last_used_at,
            )
            for activation in state.active.activations
        ],
        servers=[SavedServer(h.spec, h.identity, list(h.tools), h.via) for h in state.servers],
        surface=[
            SavedGrant(shown.grant.server, shown.grant.tool, shown.name)
            for shown in state.surface.shown
        ],
        names=[
            SavedGrant(grant.server, grant.tool, name)
            for grant, name in state.surface.names.items()
        ],
        subscriptions=dict(subscriptions or {}),
        tools=[
            SavedTool(grant.server, grant.tool, used_at)
            for grant, used_at in state.active.tools.items()
        ],
    )


def restore(record: SessionRecord, state: SessionState) -> None:
    """Restore a session from its saved record.

    Activations whose definition or servers are missing from the record are left out, and so are
    tools beyond the caps or denied by policy.
    """
    servers = [
        # A definition that is not a JSON object can be neither listed nor renamed.
        ServerLease(
            *(s.spec, s.identity, NO_INSTANCE),
            tuple(tool for tool in s.tools if members_or_none(tool.json)),
            s.via,
        )
        for s in record.servers
    ]
    activations = [
        Activation(
            saved.spec.id,
            tuple(saved.servers),
            tuple(Grant(each.server, each.tool) for each in saved.grants),
            saved.last_used_at,
        )
        for saved in record.activations
    ]
    names = {Grant(each.server, each.tool): each.name for each in record.names}
    order = [Grant(each.server, each.tool) for each in record.surface]
    specs = {saved.spec.id: saved.spec for saved in record.activations}
    tools = {Grant(each.server, each.tool): each.last_used_at for each in record.tools}
    state.restore(activations, specs, servers, names, order, tools=tools)
