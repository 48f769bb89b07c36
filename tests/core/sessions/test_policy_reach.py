"""Policy on a server that several capabilities name differently."""

from collections.abc import Sequence

import pytest

from capd.core.servers.identity import server_identity
from capd.core.sessions.active_set import ActiveSet
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.sessions.policy_reach import (
    capability_restriction,
    denied_among,
    prompt_restriction,
    without_denied_servers,
)
from capd.core.sessions.session import ServerLease, SessionState
from capd.core.sessions.surface import Surface
from capd.core.tools.tool_search import Restriction
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

TAP = TapName("mine")


def server(name: str, command: str = "fs", key: str = "") -> ServerSpec:
    env = {key: "{{ENV:" + key + "}}"} if key else {}
    return ServerSpec(ServerName(name), "stdio", TAP, command=command, env=env)


def capability(name: str, *servers: ServerSpec) -> CapabilitySpec:
    id_ = CapabilityId(TAP, CapabilityName(name))
    return CapabilitySpec(id_, "x", servers=servers, wanted_keys=("A", "B"))


def held(spec: ServerSpec, *tools: str) -> ServerLease:
    listed = tuple(ToolDefinition(ToolName(n), b'{"name":"%s"}' % n.encode()) for n in tools)
    return ServerLease(spec, server_identity(spec), InstanceId(spec.name), listed)


def denying(*rules: str) -> Policy:
    return Policy((PolicyRules("[policy]", deny=rules),))


def why(rule: str) -> Restriction:
    return Restriction("denied", f"denied by policy: rule '{rule}' in [policy]")


def state(policy: Policy) -> SessionState:
    """A session that has one server on under two names."""
    made = SessionState(ActiveSet(4, 24), Surface(()), policy)
    one, two = server("one"), server("two")
    made.activate(capability("first", one), [held(one, "run")], 1.0)
    made.activate(capability("second", two), [held(two, "run")], 2.0)
    return made


@pytest.mark.parametrize("rule", ["one:ask", "two:ask", "*:a*"])
def test_a_rule_on_any_name_of_a_server_denies(rule: str) -> None:
    session = state(denying(rule))
    identity = server_identity(server("one"))

    assert prompt_restriction(session, identity, "ask") == why(rule)
    assert prompt_restriction(session, identity, "other") is None


def test_subscriptions_that_are_denied_are_named() -> None:
    session = state(denying("two:x://secret/*"))
    identity = server_identity(server("one"))
    uris = dict.fromkeys(["x://open", "x://secret/a", "x://%73ecret/b"], identity)

    assert denied_among(session, uris) == ["x://secret/a", "x://%73ecret/b"]


def test_a_denied_server_is_left_out_with_the_keys_that_it_alone_asks_for() -> None:
    first, second = server("one", "a", "A"), server("two", "b", "B")
    both = capability("both", first, second)

    left = without_denied_servers(both, denying("one:*"))

    assert (left.servers, left.wanted_keys) == ((second,), ("B",))
    assert without_denied_servers(both, denying("one:run")) is both


ONE, TWO = server("one", "a"), server("two", "b")


@pytest.mark.parametrize(
    ("rules", "servers", "restriction"),
    [
        (["one:run"], [held(ONE, "run", "stop"), held(TWO)], None),
        (["one:run"], [held(ONE, "run"), held(TWO)], why("one:run")),
        (["one:*"], [held(TWO, "go")], None),
        (["one:*", "go"], [held(TWO, "go")], why("one:*")),
        (["other:*"], [held(ONE), held(TWO)], None),
    ],
)
def test_a_capability_is_denied_where_policy_took_its_last_tool(
    rules: Sequence[str], servers: list[ServerLease], restriction: Restriction | None
) -> None:
    got = capability_restriction(capability("both", ONE, TWO), servers, denying(*rules))

    assert got == restriction
