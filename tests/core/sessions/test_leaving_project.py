"""What a session loses when a project is no longer trusted, and what it keeps."""

import json

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.session import (
    ServerLease,
    SessionState,
    SingleTool,
    capabilities_of_project,
    without_project,
)
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

PROJECT = "/src/app"


def server(name: str, project: str = "") -> ServerSpec:
    return ServerSpec(ServerName(name), "stdio", TapName("t"), command=name, project=project)


def held(spec: ServerSpec, *tools: str) -> ServerLease:
    definitions = tuple(
        ToolDefinition(ToolName(each), json.dumps({"name": each}).encode()) for each in tools
    )
    return ServerLease(spec, server_identity(spec), InstanceId(spec.name), definitions)


def capability(name: str, *servers: ServerSpec) -> CapabilitySpec:
    return CapabilitySpec(CapabilityId(TapName("t"), CapabilityName(name)), "x", servers=servers)


THEIRS, PINNED, SINGLE = (server(name, PROJECT) for name in ("db", "pinned", "single"))
OWN, OTHERS = server("git"), server("db", "/src/other")


OTHER = "db__q_c0a40f"
"""The name of a tool that another server had first."""


def session() -> SessionState:
    """Return a session that uses servers of the project and others."""
    state = SessionState(ActiveSet(), Surface(()))
    state.activate(capability("app", THEIRS, OWN), [held(THEIRS, "q"), held(OWN, "log")], 0.0)
    state.activate(capability("git", OWN), [held(OWN, "log")], 0.0)
    state.activate(capability("other", OTHERS), [held(OTHERS, "q")], 0.0)
    state.pin(held(PINNED, "p"), ["*"])
    single = held(SINGLE, "s")
    via = CapabilityId(TapName("t"), CapabilityName("app"))
    state.activate_tools([SingleTool(SINGLE, single.identity, single.tools[0], via)], 0.0)
    return state


def test_what_rests_on_a_projects_servers_goes_and_all_else_stays() -> None:
    state = session()
    before = [str(each.name) for each in state.surface.shown]

    step = without_project(state, PROJECT)

    assert before == ["db__q", "git__log", OTHER, "pinned__p", "single__s"]
    assert [str(each.name) for each in state.surface.shown] == ["git__log", OTHER]
    assert sorted(step.removed) == ["db__q", "pinned__p", "single__s"]
    assert [str(each.id.name) for each in state.active.activations] == ["git", "other"]
    assert state.active.tools == {}
    assert step.unheld[0] == held(THEIRS, "q")


def test_who_rests_on_it_is_named_and_a_second_time_nothing_changes() -> None:
    state = session()

    first = capabilities_of_project(state, PROJECT)
    without_project(state, PROJECT)
    again = without_project(state, PROJECT)

    assert [str(each.name) for each in first] == ["app"]
    assert capabilities_of_project(state, PROJECT) == []
    assert (again.removed, again.unheld, again.changes_list) == ((), (), False)
