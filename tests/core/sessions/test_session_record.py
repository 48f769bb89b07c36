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


@pytest.mark.parametrize("order", [[0, 3], [3, 0]])
def test_a_capability_that_is_asked_for_again_is_not_what_its_server_evicts(
    order: list[int],
) -> None:
    now = state()
    now.activate(capability("c0", SERVERS[0], SERVERS[3]), both(["log"], [0, 3]), 0.0)
    for number in range(1, 5):
        now.activate(capability(f"c{number}", SERVERS[0]), both([], [0]), float(number))

    # The server lists its tool again, so that the four others show one too: one of them is evicted.
    step = now.activate(capability("c0", *(SERVERS[at] for at in order)), both(["log"], order), 5.0)

    assert [str(each.name) for each in step.evicted] == ["c1"]
    assert step.unheld == ()
    assert [str(each.id.name) for each in now.active.activations] == ["c0", "c2", "c3", "c4"]
    assert {each.spec.name for each in now.servers} == {"git", "a.b"}


def test_a_server_that_evicts_what_uses_another_server_of_the_same_capability_loses_no_lease() -> (
    None
):
    now = state(cap=1)
    now.activate(capability("old", SERVERS[3]), both(["log"], [3]), 0.0)
    now.activate(capability("silent", SERVERS[0]), both([], [0]), 1.0)

    step = now.activate(capability("new", SERVERS[3], SERVERS[0]), both(["log"], [3, 0]), 2.0)

    assert {str(each.name) for each in step.evicted} == {"old", "silent"}
    assert step.unheld == ()
    assert {each.spec.name for each in now.servers} == {"git", "a.b"}
    assert len(now.tools_of(CapabilityId(TAP, CapabilityName("new")))) == 2


def both(names: list[str], servers: list[int]) -> list[ServerLease]:
    return [held(SERVERS[at], names) for at in servers]


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
