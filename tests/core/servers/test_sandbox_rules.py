"""Which sandbox level a server gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.sandbox import Level, SandboxRequest
from capd.core.servers.sandbox_rules import LEVELS, SandboxRule, SandboxRules, declared_level


@pytest.mark.parametrize(
    ("rules", "declared", "is_project", "sandbox_request"),
    [
        (SandboxRules(), "", False, SandboxRequest("guard")),
        (SandboxRules(), "", True, SandboxRequest("strict")),
        (SandboxRules(), "off", False, SandboxRequest("guard")),
        (SandboxRules(), "strict", False, SandboxRequest("strict")),
        (SandboxRules(), "strict+network", True, SandboxRequest("strict", has_network=True)),
        (SandboxRules(masks=("ssh",)), "", False, SandboxRequest("guard", ("ssh",))),
        (SandboxRules(level="off"), "guard", False, SandboxRequest("guard")),
        (SandboxRules(servers={"fs*": SandboxRule("off")}), "strict", True, SandboxRequest("off")),
        (
            SandboxRules(servers={"fs": SandboxRule(masks=())}, masks=("ssh",)),
            "",
            False,
            SandboxRequest(is_covered=False),
        ),
        (
            SandboxRules(servers={"fs": SandboxRule(network=False)}),
            "strict+network",
            False,
            SandboxRequest("strict"),
        ),
    ],
)
def test_the_user_has_the_last_word_and_a_definition_may_ask_for_more(
    rules: SandboxRules, declared: str, is_project: bool, sandbox_request: SandboxRequest
) -> None:
    assert rules.sandbox_request("fs", declared, is_project=is_project) == sandbox_request


@given(
    level=st.sampled_from(LEVELS),
    project=st.sampled_from(LEVELS),
    declared=st.sampled_from(["", "off", "guard", "strict", "strict+network"]),
    is_project=st.booleans(),
)
def test_no_definition_gets_less_than_the_user_says(
    level: Level, project: Level, declared: str, is_project: bool
) -> None:
    rules = SandboxRules(level=level, project=project)

    sandbox_request = rules.sandbox_request("any", declared, is_project=is_project)

    usual = project if is_project else level
    assert LEVELS.index(sandbox_request.level) >= LEVELS.index(usual)


@pytest.mark.parametrize("declared", ["none", "strict+", "strict+net", "+network", "Strict"])
def test_a_level_that_means_nothing_is_told_with_those_that_do(declared: str) -> None:
    with pytest.raises(ValueError, match=r"one of off, guard, strict, strict\+network"):
        declared_level(declared)
