"""The saved record of a session, from which a new daemon restores it (docs/design/surface.md).

A record has the definitions of servers, and no instances: servers start again when they are needed.
It contains no secrets: it has only a digest of the resume token, and definitions have placeholders
where secrets belong. A client's hello, the first line of its connection, may name a session. The
session's record also decides whether the client may use it (`claim_refusal`).
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Literal

import msgspec

from capd.core.protocol.generations import members_or_none
from capd.core.sessions.active_set import Activation, Grant
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState
from capd.core.sessions.session_keys import is_key
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
    """A tool of a server, with its name for clients.

    The name is empty in an activation's grants: `SessionRecord.names` has it.
    """

    server: ServerIdentity
    tool: ToolName
    name: WireName = WireName("")


class SavedActivation(msgspec.Struct, frozen=True):
    """A capability that was on when the session was saved."""

    spec: CapabilitySpec
    servers: list[ServerIdentity]
    grants: list[SavedGrant]
    last_used_at: float


class SavedServer(msgspec.Struct, frozen=True):
    """A leased server, with the tools that it listed last."""

    spec: ServerSpec
    identity: ServerIdentity
    tools: list[ToolDefinition]
    via: CapabilityId | None = None


class SavedTool(msgspec.Struct, frozen=True, array_like=True):
    """A single tool that was on when the session was saved."""

    server: ServerIdentity
    tool: ToolName
    last_used_at: float


class SavedView(msgspec.Struct, frozen=True):
    """How the client saw its tools (`mode`), and the facts by which this was chosen."""

    mode: str
    reason: str
    client: str
    """The client's name in its hello."""
    is_stateless: bool = False
    """Whether the client speaks the stateless generation of MCP."""
    has_deferred: bool = True
    """Whether there are more tools than the list shows."""


class SessionRecord(msgspec.Struct, frozen=True):
    """Everything that is saved of one session."""

    key: SessionKey
    resume_digest: str
    saved_at: float
    """When the record was saved, in seconds since the epoch."""
    activations: list[SavedActivation]
    servers: list[SavedServer]
    surface: list[SavedGrant]
    """The granted tools, in the order of the surface."""
    names: list[SavedGrant]
    """Every wire name that a tool of the session ever had."""
    version: int = VERSION
    subscriptions: dict[str, ServerIdentity] = {}
    """The server of each resource that the client has subscribed to, by its URI. Only clients that
    began with `initialize` have entries."""
    tools: list[SavedTool] = []
    """The tools that are on by themselves, in the order of their activation."""
    is_routed: bool | None = None
    """The session's own setting of whether its messages are routed; None if it has none."""
    memories: list[str] = []
    """The keys of the memories that were delivered to its conversation."""
    memory_tokens: int = 0
    conversation: str = ""
    """The client's id of the conversation that got the memories."""
    is_bootstrapped: bool = False
    """Whether the conversation got the project's bootstrap files."""
    is_index_told: bool = False
    """Whether the conversation got the index from a hook."""
    view: SavedView | None = None
    """The mode, if capd chose it from what was installed; the session keeps it. None if the user
    has set the mode, or if it is `pass-through`."""
    tasks: dict[str, list[ServerIdentity]] = {}
    """The servers that run an MCP task of the client, by the task's id."""
    apps: list[dict[str, ServerIdentity]] = []
    """Two mappings of the URI of an MCP app's page to a server. The first has the servers on which
    the app's tool was called, the second those from which the page was read."""
    digest: str = ""
    """Digest of the bytes before it in the file, so it must stay the last field. It is empty in a
    file of an earlier capd, and in every record that is not in a file."""


def token_digest(resume: str) -> str:
    """Return the digest under which the token for resuming a session is saved."""
    return hashlib.sha256(resume.encode()).hexdigest()


def may_resume(record: SessionRecord, resume: str) -> bool:
    """Tell whether a client may resume a saved session that no connection uses.

    Because no connection uses the session, its key is enough: an empty `resume` is accepted. A
    token that is not empty must be the last one that the session had (docs/protocol.md, "Opening").
    """
    return not resume or hmac.compare_digest(token_digest(resume), record.resume_digest)


def has_anything(record: SessionRecord) -> bool:
    """Tell whether a record is worth saving: something is on, was delivered, or was set."""
    was_told = bool(record.memories) or record.is_bootstrapped or record.is_index_told
    is_on = bool(record.activations or record.tools)
    return is_on or was_told or record.is_routed is not None


def is_kept(record: SessionRecord, now: float) -> bool:
    """Tell whether a record may still be restored at `now` (seconds since the epoch)."""
    return record.version == VERSION and now - record.saved_at < RETENTION


def recorded(
    key: SessionKey,
    state: SessionState,
    resume: str,
    now: float,
    subscriptions: Mapping[str, ServerIdentity] | None = None,
) -> SessionRecord:
    """Return what to save of a session, as a record.

    `resume` is the token with which its client may resume it, and `now` the time of the save.
    """
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
    """Restore into `state` what was on when `record` was saved.

    Activations with a server that is missing from the record, tools that policy denies, and what is
    over the limits are left out.
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


def claim_refusal(
    key: str,
    resume: str,
    record: SessionRecord | None,
    *,
    is_ending: bool = False,
    token: str | None = None,
) -> tuple[Literal["bad_hello", "resume_refused", "session_in_use"], str] | None:
    """Return why a client gets no session: an error code and a reason; None if it gets one.

    `key` and `resume` are those of the client's hello; both may be empty. `token` is the resume
    token of the open session with this key, None if no such session is open. For an open session
    `resume` must be this token, and no client gets the session while it ends (`is_ending`). If none
    is open, `record`, the session's saved record, decides: an empty `resume` or the record's last
    token is accepted. Without a record (None) any `resume` is accepted.
    """
    if key and not is_key(key):
        return "bad_hello", "a session key is 1 to 128 of A-Z a-z 0-9 . _ : -"
    if token is None:
        if record is None or may_resume(record, resume):
            return None
        return "resume_refused", f"session {key} has another token by now"
    if is_ending:
        return "session_in_use", f"session {key} is just ending; try again"
    # As bytes: `compare_digest` takes only ASCII strings, and one of them is the client's.
    if hmac.compare_digest(resume.encode(), token.encode()):
        return None
    text = f"session {key} is not over; resume it with its last token"
    return ("resume_refused" if resume else "session_in_use"), text
