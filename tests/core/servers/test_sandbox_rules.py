"""Which confinement a server gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.servers.sandbox import Level, Wish
from capd.core.servers.sandbox_rules import LEVELS, SandboxRule, SandboxRules, declared_level


@pytest.mark.parametrize(
    ("rules", "declared", "is_project", "wish"),
    [
        (SandboxRules(), "", False, Wish("guard")),
        (SandboxRules(), "", True, Wish("strict")),
        (SandboxRules(), "off", False, Wish("guard")),
        (SandboxRules(), "strict", False, Wish("strict")),
        (SandboxRules(), "strict+network", True, Wish("strict", has_network=True)),
        (SandboxRules(masks=("ssh",)), "", False, Wish("guard", ("ssh",))),
        (SandboxRules(level="off"), "guard", False, Wish("guard")),
        (SandboxRules(servers={"fs*": SandboxRule("off")}), "strict", True, Wish("off")),
        (
            SandboxRules(servers={"fs": SandboxRule(masks=())}, masks=("ssh",)),
            "",
            False,
            Wish(is_covered=False),
        ),
        (
            SandboxRules(servers={"fs": SandboxRule(network=False)}),
            "strict+network",
            False,
            Wish("strict"),
        ),
    ],
)
def test_the_user_has_the_last_word_and_a_definition_may_ask_for_more(
    rules: SandboxRules, declared: str, is_project: bool, wish: Wish
) -> None:
    assert rules.wish("fs", declared, is_project=is_project) == wish


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

    wish = rules.wish("any", declared, is_project=is_project)

    usual = project if is_project else level
    assert LEVELS.index(wish.level) >= LEVELS.index(usual)


@pytest.mark.parametrize("declared", ["none", "strict+", "strict+net", "+network", "Strict"])
def test_a_level_that_means_nothing_is_told_with_those_that_do(declared: str) -> None:
    with pytest.raises(ValueError, match=r"one of off, guard, strict, strict\+network"):
        declared_level(declared)
