"""Which rule denies what, and to whom."""

import pytest

from capd.core.sessions.policy import Policy, PolicyRules, policy_for
from capd.core.tools.tool_search import Bar

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
    bar = policy(client, project).bar(server, tool)

    assert bar == (Bar("denied", f"denied by policy: {rule}") if rule else None)


def test_without_rules_nothing_is_denied() -> None:
    empty = policy_for(PolicyRules("[policy]"), [], [], ["x"], "/")

    assert (empty, empty.bar("git", "push")) == (Policy(), None)
