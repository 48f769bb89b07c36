"""Decides what a call of a tool reaches.

A call comes from the client itself, from capd's own tool `tool_call`, or from a script. A wire name
is the name under which clients know a tool. A tool is *active* if something that is on in the
session grants it, whether it is listed or not.

    name ──a server's active tool────> ActiveTool      check its arguments if needed, then send
      ├──one of capd's own tools─────> CapdTool        `tool_call` may call only unlisted ones,
      │                                                a script none
      ├──the tool of prompt hooks────> PromptHookCall  only for the client itself, and not if the
      │                                                session has no tools of capd's own
      ├──anything else───────────────> NotActive       look it up in the catalog, or refuse
      └──not for this caller─────────> NotCallable     answer with the reason

A tool that policy denies is never active: `SessionState.restrict` removes it.
"""

from dataclasses import dataclass
from typing import Literal

from capd.core.protocol.apps import is_for_apps_alone
from capd.core.protocol.outcomes import CallFailedError, NotSentError, RefusedError
from capd.core.sessions.hook_context import TURN
from capd.core.sessions.own_tool_list import SCRIPT_TOOL, OwnTool
from capd.core.sessions.session import ServerLease, SessionState
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import ShownTool
from capd.core.tools.names import wire_name
from capd.core.tools.read_only import is_read_only
from capd.core.tools.tool_edits import DISABLED
from capd_protos.types import ToolName, WireName

CallOrigin = Literal["client", "tool_call", "tool_call_readonly", "script"]
"""Where the tool's name comes from: a client's own `tools/call`, the arguments of `tool_call` or
`tool_call_readonly`, or a script."""


@dataclass(frozen=True, slots=True)
class ActiveTool:
    """The result of admitting a call: a server's active tool, with the lease that it uses."""

    shown: ShownTool
    lease: ServerLease
    checks_arguments: bool
    """Whether its arguments are checked against its schema before the call is sent."""


@dataclass(frozen=True, slots=True)
class CapdTool:
    """The result of admitting a call: one of capd's own tools."""

    tool: OwnTool


@dataclass(frozen=True, slots=True)
class PromptHookCall:
    """The result of admitting a call: the tool `capd_turn`, which a prompt hook calls."""


@dataclass(frozen=True, slots=True)
class NotActive:
    """The result of admitting a call: no active tool has this name."""


@dataclass(frozen=True, slots=True)
class NotCallable:
    """The result of admitting a call: it reaches nothing, and is answered with `reason`."""

    reason: str


Admission = ActiveTool | CapdTool | PromptHookCall | NotActive | NotCallable


def admit(name: str, by: CallOrigin, state: SessionState, view: SessionView) -> Admission:
    """Return what a call of the tool `name` reaches.

    `name` is the name under which clients know the tool, and `by` says who makes the call.
    """
    active = active_tool(state.surface.find(name), state, view)
    if active is not None:
        reason = app_only_refusal(active.shown, by)
        return NotCallable(reason) if reason else active
    own = view.own.get(WireName(name))
    unlisted = view.unlisted_own.get(WireName(name))
    if by == "script" and (own is not None or unlisted is not None):
        return NotCallable(f"{name} is capd's own: a script calls tools of servers alone.")
    if by == "tool_call_readonly" and unlisted is not None:
        return NotCallable(f"{name} runs calls that may write: call it with {view.caller}.")
    if own is not None and by != "client":
        return NotCallable(f"{name} is capd's own: call it by its name.")
    if own is not None or unlisted is not None:
        return CapdTool(own or SCRIPT_TOOL)
    if name == TURN and by == "client" and not view.is_bare:
        return PromptHookCall()
    return NotActive()


def active_tool(
    shown: ShownTool | None, state: SessionState, view: SessionView
) -> ActiveTool | None:
    """Return how to call the tool `shown`.

    The result is None if `shown` is None, or if nothing that is on grants the tool any longer.
    """
    lease = state.granted_by(shown.grant) if shown is not None else None
    return (
        None
        if shown is None or lease is None
        else ActiveTool(shown, lease, view.checks(lease.spec.name))
    )


def app_only_refusal(shown: ShownTool, by: CallOrigin) -> str:
    """Return why a tool must not be called; empty if it may be.

    A tool that is only for its server's app (MCP Apps, `visibility`) may be called by the client
    itself, which passes on the calls of apps, but not for a model.
    """
    if by == "client" or not is_for_apps_alone(shown.definition):
        return ""
    return f"{shown.name} is for the app of its server alone."


def denied(name: str, reason: str) -> str:
    """Return the text that refuses a call of `name`, with the reason: policy, domain or overlay."""
    return f"{name} cannot be called: {reason}."


def check_read_only(shown: ShownTool, by: CallOrigin, view: SessionView) -> None:
    """Check that `tool_call_readonly` calls only tools that their servers mark as read-only.

    Raises:
        RefusedError: the server does not mark this tool as read-only.
    """
    if by == "tool_call_readonly" and not is_read_only(shown.definition):
        raise RefusedError(
            f"{shown.name} is not marked read-only by its server. The call was not sent: call it "
            f"with {view.caller}, which may ask the user."
        )


def refusal_of(name: str, state: SessionState) -> CallFailedError | None:
    """Return why a call of an inactive tool is refused; None if the session knows no such tool.

    Examples of a reason: the tool's server was switched off, policy denies the tool, or an overlay
    (a folder of the user's changes) disables it.
    """
    known = state.surface.known(name)
    if known is None:
        return _refusal_of_unnamed(name, state)
    lease = state.lease_on(known.server)
    if lease is None:
        why = "its server was switched off, replaced or removed"
        return NotSentError(f"{name} is not on any more: {why}. The call was not sent.")
    restriction = state.policy.restriction(lease.spec.name, known.tool)
    if restriction is not None:
        return RefusedError(denied(name, restriction.reason))
    if any(edit.tool == known.tool and edit.is_disabled for edit in lease.spec.edits):
        return RefusedError(denied(name, DISABLED))
    why = f"{lease.spec.name} does not offer {known.tool} any more"
    return NotSentError(f"{name} is not on any more: {why}. The call was not sent.")


def _refusal_of_unnamed(name: str, state: SessionState) -> CallFailedError | None:
    """Return why a call of `name` is refused, if it is a tool that was never active; else None.

    The session has no name for such a tool. So `name` is compared with the name that each tool of a
    leased server would have, if policy denies the tool or an overlay disables it.
    """
    for lease in state.servers:
        server = lease.spec.name
        for tool in lease.tools:
            restriction = state.policy.restriction(server, tool.name)
            if restriction is not None and name == wire_name(
                server, lease.identity, tool.shown_name
            ):
                return RefusedError(denied(name, restriction.reason))
        for edit in lease.spec.edits:
            wire = wire_name(lease.spec.name, lease.identity, ToolName(edit.name or edit.tool))
            if edit.is_disabled and wire == name:
                return RefusedError(denied(name, DISABLED))
    return None
