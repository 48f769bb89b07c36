"""One rule decides what a tool call reaches, whoever makes the call."""

import json

import pytest

from capd.core.protocol.outcomes import NotSentError, RefusedError
from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.admission import (
    ActiveTool,
    CallOrigin,
    CapdTool,
    NotActive,
    NotCallable,
    PromptHookCall,
    admit,
    refusal_of,
)
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.session import ServerLease, SessionState, SingleTool
from capd.core.sessions.session_rules import SessionRules
from capd.core.sessions.session_view import SessionView
from capd.core.sessions.surface import Surface
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    InstanceId,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
)

TAP = TapName("t")
GIT, DB = (ServerSpec(ServerName(name), "stdio", TAP, command=name) for name in ("git", "db"))
ID = CapabilityId(TAP, CapabilityName("code"))
NO_PUSH = Policy((PolicyRules("[policy]", deny=("git:push",)),))


def definitions(*names: str) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(ToolName(name), json.dumps({"name": name}).encode()) for name in names
    )


def leased(spec: ServerSpec, *tools: str) -> ServerLease:
    return ServerLease(spec, server_identity(spec), InstanceId(spec.name), definitions(*tools))


def session(
    rules: SessionRules | None = None, *, is_bare: bool = False
) -> tuple[SessionState, SessionView]:
    """Return a session with git's tools active, and its view."""
    view = SessionView(rules or SessionRules(), client="zed", project="/src", is_bare=is_bare)
    surface = Surface((), is_bare=is_bare)
    view.decide(surface)
    state = SessionState(ActiveSet(), surface, view.policy)
    capability = CapabilitySpec(ID, "default", servers=(GIT,))
    state.activate(capability, [leased(GIT, "log", "push")], 0.0)
    return state, view


@pytest.mark.parametrize("by", ["client", "tool_call"])
def test_a_tool_that_is_on_is_reached_by_either_way(by: CallOrigin) -> None:
    state, view = session()

    admitted = admit("git__log", by, state, view)

    assert isinstance(admitted, ActiveTool)
    assert admitted.shown.grant.tool == "log"
    assert admitted.lease == leased(GIT, "log", "push")


@pytest.mark.parametrize(
    ("name", "by", "is_bare", "kind"),
    [
        ("tool_search", "client", False, CapdTool),
        ("tool_search", "tool_call", False, NotCallable),
        ("capd_turn", "client", False, PromptHookCall),
        ("capd_turn", "tool_call", False, NotActive),
        ("capd_turn", "client", True, NotActive),
        ("tool_search", "client", True, NotActive),
        ("git__merge", "client", False, NotActive),
        ("git__merge", "tool_call", False, NotActive),
        # A script may write: the tool that calls read-only ones alone does not run it.
        ("script_run", "tool_call", False, CapdTool),
        ("script_run", "tool_call_readonly", False, NotCallable),
        ("script_run", "script", False, NotCallable),
        ("tool_search", "script", False, NotCallable),
        ("", "client", False, NotActive),
    ],
)
def test_what_is_no_tool_of_a_server_is_told_apart(
    name: str, by: CallOrigin, *, is_bare: bool, kind: type
) -> None:
    state, view = session(is_bare=is_bare)

    assert isinstance(admit(name, by, state, view), kind)


def test_a_tool_that_was_evicted_within_a_turn_is_reached_by_the_catalog() -> None:
    state, view = session()
    state.is_mid_turn = True
    capability = CapabilitySpec(CapabilityId(TAP, CapabilityName("data")), "default", servers=(DB,))
    state.active.cap = 1
    state.activate(capability, [leased(DB, "query")], 1.0)

    assert isinstance(admit("git__log", "client", state, view), NotActive)
    assert isinstance(admit("db__query", "client", state, view), ActiveTool)


@pytest.mark.parametrize(
    ("rules", "is_bare", "is_checked"),
    [
        (SessionRules(), False, True),
        (SessionRules(checks_arguments=False), False, False),
        (SessionRules(unchecked=("g*",)), False, False),
        (SessionRules(unchecked=("db",)), False, True),
        (SessionRules(), True, False),
    ],
)
def test_arguments_are_checked_unless_the_user_or_the_listener_says_otherwise(
    rules: SessionRules, *, is_bare: bool, is_checked: bool
) -> None:
    state, view = session(rules, is_bare=is_bare)

    admitted = admit("log" if is_bare else "git__log", "client", state, view)

    assert isinstance(admitted, ActiveTool)
    assert admitted.checks_arguments is is_checked


def test_what_policy_denies_by_now_is_refused_with_its_rule() -> None:
    state, view = session()
    state.restrict(NO_PUSH)

    admitted, refusal = admit("git__push", "client", state, view), refusal_of("git__push", state)

    assert isinstance(admitted, NotActive)
    assert isinstance(refusal, RefusedError)
    assert (
        str(refusal) == "git__push cannot be called: denied by policy: rule 'git:push' in [policy]."
    )


def test_a_tool_that_its_server_lists_no_more_is_not_sent() -> None:
    state, _ = session()
    state.update_server(server_identity(GIT), InstanceId("git"), list(definitions("log")))

    refusal = refusal_of("git__push", state)

    assert isinstance(refusal, NotSentError)
    assert "git does not offer push any more" in str(refusal)


def test_a_tool_whose_server_was_switched_off_is_not_sent() -> None:
    state, _ = session()
    state.deactivate(ID)

    refusal = refusal_of("git__log", state)

    assert isinstance(refusal, NotSentError)
    assert "its server was switched off" in str(refusal)


def test_a_name_that_was_never_given_has_no_refusal() -> None:
    state, _ = session()
    single = leased(DB, "query")
    state.activate_tools([SingleTool(DB, single.identity, single.tools[0], ID)], 1.0)

    assert refusal_of("db__insert", state) is None
    assert refusal_of("db__query", state) is not None
