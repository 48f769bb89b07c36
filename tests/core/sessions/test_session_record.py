"""A session restored from its saved record is the same session."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.session import NO_INSTANCE, ServerLease, SessionState
from capd.core.sessions.session_record import (
    RETENTION,
    SessionRecord,
    is_kept,
    may_resume,
    recorded,
    restore,
)
from capd.core.sessions.surface import Surface
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    InstanceId,
    ServerName,
    ServerSpec,
    SessionKey,
    TapName,
    ToolDefinition,
    ToolName,
    WireName,
)

TAP = TapName("tap")
KEY = SessionKey("s")
SERVERS = [
    ServerSpec(ServerName(name), "stdio", TAP, command=command)
    for name, command in [("git", "git-mcp"), ("vcs", "git-mcp"), ("git", "other"), ("a.b", "odd")]
]


def state(cap: int = 4) -> SessionState:
    return SessionState(ActiveSet(cap), Surface([(WireName("capability"), b"{}")]))


def tools(names: list[str]) -> tuple[ToolDefinition, ...]:
    return tuple(
        ToolDefinition(ToolName(name), msgspec.json.encode({"name": name})) for name in names
    )


def held(spec: ServerSpec, names: list[str]) -> ServerLease:
    return ServerLease(spec, server_identity(spec), InstanceId("i-1"), tools(names))


def capability(name: str, *servers: ServerSpec) -> CapabilitySpec:
    return CapabilitySpec(CapabilityId(TAP, CapabilityName(name)), "default", servers=servers)


def recovered(before: SessionState, cap: int = 4) -> SessionState:
    """Write down and find again, through the bytes."""
    data = msgspec.msgpack.encode(recorded(KEY, before, "token", 0.0))
    after = state(cap)
    restore(msgspec.msgpack.decode(data, type=SessionRecord), after)
    return after


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["on", "off"]),
        st.integers(0, 5),
        st.lists(st.integers(0, len(SERVERS) - 1), min_size=1, max_size=2, unique=True),
        st.lists(st.sampled_from(["log", "diff", "x.y"]), max_size=3, unique=True),
    ),
    max_size=12,
)


@given(STEPS)
def test_a_session_found_again_lists_the_same_bytes_and_has_the_same_set(
    steps: list[tuple[str, int, list[int], list[str]]],
) -> None:
    before = state()
    for now, (verb, number, servers, names) in enumerate(steps):
        specs = [SERVERS[each] for each in servers]
        spec = capability(f"c{number}", *specs)
        if verb == "on":
            before.activate(spec, [held(each, names) for each in specs], float(now))
        else:
            before.deactivate(spec.id)

    after = recovered(before)

    assert after.surface.listing() == before.surface.listing()
    assert after.active == before.active
    assert [(h.spec, h.tools) for h in after.servers] == [(h.spec, h.tools) for h in before.servers]
    assert after.surface.names == before.surface.names
    assert {each.instance for each in after.servers} <= {NO_INSTANCE}


def test_a_smaller_cap_keeps_what_was_used_last() -> None:
    before = state()
    for now, name in enumerate(["one", "two", "three"]):
        spec = SERVERS[now]
        before.activate(capability(name, spec), [held(spec, ["log"])], float(now))

    after = recovered(before, cap=2)

    assert [each.id.name for each in after.active.activations] == ["two", "three"]
    assert len(after.surface) == 3


def test_an_activation_whose_server_is_not_in_the_record_stays_out() -> None:
    before = state()
    before.activate(capability("one", SERVERS[0]), [held(SERVERS[0], ["log"])], 0.0)
    record = recorded(KEY, before, "token", 0.0)
    after = state()

    restore(msgspec.structs.replace(record, servers=[]), after)

    assert after.active.activations == ()
    assert after.surface.listing() == state().surface.listing()


@pytest.mark.parametrize(("token", "expected"), [("token", True), ("", True), ("older", False)])
def test_a_token_that_is_given_must_be_the_last_one(token: str, expected: bool) -> None:
    record = recorded(KEY, state(), "token", 0.0)

    assert may_resume(record, token) is expected


@pytest.mark.parametrize(
    ("now", "version", "expected"),
    [
        (0.0, 1, True),
        (RETENTION - 1, 1, True),
        (RETENTION, 1, False),
        (-RETENTION * 10, 1, True),
        (0.0, 2, False),
    ],
)
def test_a_record_is_kept_for_a_day(now: float, version: int, expected: bool) -> None:
    record = msgspec.structs.replace(recorded(KEY, state(), "token", 0.0), version=version)

    assert is_kept(record, now) is expected
