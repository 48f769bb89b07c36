"""Which capabilities policy denies completely, and which tools are outside the domain."""

import pytest

from capd.core.servers.identity import server_identity
from capd.core.sessions.policy import Policy, PolicyRules
from capd.core.tools.known_tools import KnownTools
from capd.core.tools.tool_search import Restriction
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    ServerName,
    ServerSpec,
    TapName,
    ToolDefinition,
    ToolName,
)

TAP = TapName("mine")


def server(name: str, *, lazy: bool = True) -> ServerSpec:
    return ServerSpec(ServerName(name), "stdio", TAP, command=name, lazy=lazy)


def capability(
    name: str,
    *servers: ServerSpec,
    allowed: tuple[str, ...] | None = None,
    domains: tuple[str, ...] = (),
) -> CapabilitySpec:
    id_ = CapabilityId(TAP, CapabilityName(name))
    return CapabilitySpec(id_, "x", servers=servers, allowed_tools=allowed, domains=domains)


def tools(*names: str) -> list[ToolDefinition]:
    return [ToolDefinition(ToolName(n), b'{"name":"%s"}' % n.encode()) for n in names]


FS, SHELL, NEW = server("fs"), server("shell", lazy=False), server("new")
KNOWN = KnownTools(
    [
        capability("files", FS),
        capability("reading", FS, allowed=("fs:read",)),
        capability("running", SHELL, domains=("ops",)),
        capability("both", FS, SHELL),
        capability("unasked", NEW),
        capability("unasked-too", FS, NEW, allowed=("fs:read", "new:*")),
        capability("filtered", FS, allowed=("fs:nothing",)),
        capability("scripts"),
    ],
    {
        server_identity(FS): tools("read", "write"),
        server_identity(SHELL): tools("run"),
    },
)


def denying(*rules: str) -> Policy:
    return Policy((PolicyRules("[policy]", deny=rules),))


@pytest.mark.parametrize(
    ("policy", "denied"),
    [
        (Policy(), []),
        (denying("fs:write"), []),
        (denying("fs:read"), ["reading"]),
        (denying("fs:*"), ["files", "reading", "filtered"]),
        (denying("fs:*", "r*"), ["files", "reading", "running", "both", "filtered"]),
        (denying("new:x"), []),
        (denying("new:*", "fs:read"), ["reading", "unasked", "unasked-too"]),
        (
            Policy((PolicyRules("[policy]", allow=("fs:write",)),)),
            ["reading", "running", "unasked", "unasked-too"],
        ),
    ],
)
def test_a_capability_is_denied_where_surely_nothing_of_it_is_left(
    policy: Policy, denied: list[str]
) -> None:
    found = KNOWN.denied_capabilities(policy)

    assert [str(id_.name) for id_ in found] == denied


def test_the_reason_is_the_first_rule_that_denies() -> None:
    found = KNOWN.denied_capabilities(denying("*:read"))

    reading = CapabilityId(TAP, CapabilityName("reading"))
    assert found == {reading: Restriction("denied", "denied by policy: rule '*:read' in [policy]")}


@pytest.mark.parametrize(
    ("domain", "barred"),
    [("", []), ("ops", []), ("dev", [])],
)
def test_a_tool_is_of_every_domain_that_one_of_its_capabilities_is_of(
    domain: str, barred: list[str]
) -> None:
    assert sorted(KNOWN.restrictions(Policy(), None, domain)) == barred


def test_a_tool_of_other_domains_alone_is_barred_and_policy_comes_first() -> None:
    known = KnownTools(
        [capability("running", SHELL, domains=("ops", "night"))],
        {server_identity(SHELL): tools("run", "stop")},
    )

    found = known.restrictions(denying("stop"), frozenset(), "dev")

    assert found == {
        "shell__run": Restriction(
            "outside_domain", "for ops, night; this session's domain is 'dev'"
        ),
        "shell__stop": Restriction("denied", "denied by policy: rule 'stop' in [policy]"),
    }


@pytest.mark.parametrize(
    ("policy", "domain", "names"),
    [
        (Policy(), "", ["shell"]),
        (Policy(), "ops", ["shell"]),
        (denying("shell:*"), "", []),
        (denying("shell:run"), "", ["shell"]),
    ],
)
def test_an_eager_server_is_for_sessions_that_may_have_it(
    policy: Policy, domain: str, names: list[str]
) -> None:
    found = KNOWN.eager(policy, domain)

    assert [each.spec.name for each in found.values()] == names


def test_an_eager_server_of_another_domain_is_left_alone() -> None:
    known = KnownTools([capability("running", SHELL, domains=("ops",))])

    assert (list(known.eager(Policy(), "dev")), len(known.eager(Policy(), "ops"))) == ([], 1)


@pytest.mark.parametrize(
    ("pattern", "category", "tools"),
    [
        ("", "", None),
        ("reading", "", {"fs__read"}),
        ("read*", "", {"fs__read"}),
        ("", "Ops", {"shell__run"}),
        ("nothing", "", set()),
        ("reading", "ops", set()),
    ],
)
def test_a_search_can_be_narrowed_to_capabilities(
    pattern: str, category: str, tools: set[str] | None
) -> None:
    assert KNOWN.of_capabilities(pattern, category) == tools


def test_a_capability_grants_the_tools_that_it_keeps_of_its_servers() -> None:
    reading, running = (
        capability("reading", SHELL, allowed=("shell:run",)),
        capability("running", SHELL),
    )
    known = KnownTools([reading, running], {server_identity(SHELL): tools("run", "stop")})

    assert known.granted_by({reading.id}) == {"shell__run"}
    assert known.granted_by({reading.id, running.id}) == {"shell__run", "shell__stop"}
    assert known.granted_by(()) == set()
    assert known.tools_of(running.id) == ["shell__run", "shell__stop"]
    assert KnownTools([running]).tools_of(running.id) is None
