"""Which policy rule denies what, and for whom."""

import pytest

from capd.core.sessions.policy import Policy, PolicyRules, policy_for
from capd.core.tools.tool_search import Restriction
from capd_protos.types import ServerName, ToolName

EVERYONE = PolicyRules("[policy]", deny=("*:delete_*",))
ZED = PolicyRules('[policy.clients."zed*"]', allow=("git:*", "time__*", "now"))
APP = PolicyRules('[policy.projects."/src/app"]', deny=("git:push",))


def policy(client: str = "claude", project: str = "/home") -> Policy:
    return policy_for(EVERYONE, [("zed*", ZED)], [("/src/app", APP)], ["", client], project)


@pytest.mark.parametrize(
    ("client", "project", "server", "tool", "rule"),
    [
        ("claude", "/home", "git", "push", ""),
        ("claude", "/home", "git", "delete_branch", "rule '*:delete_*' in [policy]"),
        ("claude", "/home", "git", "Delete_branch", "rule '*:delete_*' in [policy]"),
        ("Zed", "/home", "git", "push", ""),
        ("Zed", "/home", "db", "now", ""),
        ("Zed", "/home", "db", "query", 'no allow rule in [policy.clients."zed*"] matches it'),
        ("Zed", "/home", "git", "delete_tag", "rule '*:delete_*' in [policy]"),
        ("claude", "/src/app", "git", "push", "rule 'git:push' in [policy.projects.\"/src/app\"]"),
        (
            "claude",
            "/src/app/sub",
            "git",
            "push",
            "rule 'git:push' in [policy.projects.\"/src/app\"]",
        ),
        ("claude", "/src/app2", "git", "push", ""),
    ],
)
def test_the_first_rule_that_denies_is_named(
    client: str, project: str, server: str, tool: str, rule: str
) -> None:
    restriction = policy(client, project).restriction(server, tool)

    assert restriction == (Restriction("denied", f"denied by policy: {rule}") if rule else None)


PUBLIC = Policy(
    (
        PolicyRules("[a]", deny=("fs:file:///secret/*", "shell:*")),
        PolicyRules("[b]", allow=("fs:file:///public/*", "fs:read_*", "fs:file:///secret/*")),
    )
)


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("file:///public/a", ""),
        ("file:///public/b/", ""),
        ("file:///public/", ""),
        ("file:///public/%61", ""),
        ("file:///secret/a", "rule 'fs:file:///secret/*' in [a]"),
        ("file:///SECRET/a", "rule 'fs:file:///secret/*' in [a]"),
        ("file:///%73ecret/a", "no allow rule in [b] matches it"),
        ("file:///%70ublic/a", "no allow rule in [b] matches it"),
        ("file:///public/../secret/a", "rule 'fs:file:///secret/*' in [a]"),
        ("file:///public/%2e%2e/secret/a", "rule 'fs:file:///secret/*' in [a]"),
        ("file:///public/./..//secret/a", "rule 'fs:file:///secret/*' in [a]"),
        ("file:///public/../other", "no allow rule in [b] matches it"),
        ("file:///{path}", "no allow rule in [b] matches it"),
        ("note:1", "no allow rule in [b] matches it"),
    ],
)
def test_a_resource_is_denied_by_its_uri_however_it_is_spelled(uri: str, place: str) -> None:
    restriction = PUBLIC.restrict_resource("fs", uri)

    assert restriction == (Restriction("denied", f"denied by policy: {place}") if place else None)


@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("fs", ""),
        ("shell", "rule 'shell:*' in [a]"),
        ("Shell", "rule 'shell:*' in [a]"),
        ("git", "no allow rule in [b] matches it"),
    ],
)
def test_a_server_is_denied_where_nothing_that_it_may_offer_is_permitted(
    server: str, place: str
) -> None:
    restriction = PUBLIC.restrict_server(server)

    assert restriction == (Restriction("denied", f"denied by policy: {place}") if place else None)


@pytest.mark.parametrize(
    ("deny", "is_denied"),
    [("*", True), ("*:*", True), ("g*:**", True), ("git:", False), ("git:[a-z]*", False)],
)
def test_a_rule_on_some_names_denies_no_whole_server(deny: str, *, is_denied: bool) -> None:
    policy = Policy((PolicyRules("[policy]", deny=(deny,)),))

    assert (policy.restrict_server("git") is not None) == is_denied


def test_without_rules_nothing_is_denied() -> None:
    empty = policy_for(PolicyRules("[policy]"), [], [], ["x"], "/")

    assert (empty, empty.restriction("git", "push")) == (Policy(), None)


def test_a_tool_of_a_server_with_two_names_is_permitted_if_it_is_under_both() -> None:
    rules = Policy((PolicyRules("[policy]", deny=("git:push", "vcs:pull")),))
    names = [ToolName(name) for name in ("push", "pull", "log")]

    assert rules.permitted({ServerName("git"), ServerName("vcs")}, names) == ["log"]
    assert rules.permitted({ServerName("git")}, names) == ["pull", "log"]
    assert Policy().permitted({ServerName("git")}, names) == names
