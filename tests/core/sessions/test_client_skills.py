"""Which capabilities a client's skill names, and which messages name a skill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capd.core.sessions.client_skills import (
    MOST_CAPABILITIES,
    MOST_NAMED,
    MOST_TOOLS,
    SkillNeeds,
    brought,
    is_skill_name,
    named_in,
    skill_needs,
    tool_of,
)
from capd.core.taps.skills import LARGEST_BYTES


def skill(head: str) -> bytes:
    return f"---\nname: tidy\n{head}\n---\nTidy all boats.\n".encode()


@pytest.mark.parametrize(
    ("word", "tool"),
    [
        ("mcp__capd__git__git_log", "git__git_log"),
        ("mcp_capd_git__git_log", "git__git_log"),
        ("capd-git__git_log", "git__git_log"),
        ("capd_git__git_log", "git__git_log"),
        ("capd/git__git_log", "git__git_log"),
        ("mcp__git__git_log", "git__git_log"),
        ("mcp__git", "git__*"),
        ("mcp__git__*", "git__*"),
        ("mcp__capd__git__*", "git__*"),
        ("mcp__capd", ""),
        ("mcp__capd__*", ""),
        ("mcp__capd__tool_call", ""),
        ("mcp__capd__capability", ""),
        ("Read", ""),
        ("Bash(git add:*)", ""),
        ("mcp__", ""),
        ("mcp____", ""),
        ("mcp__../x__y", ""),
    ],
)
def test_an_entry_of_allowed_tools_is_a_tool_of_capd_or_none(word: str, tool: str) -> None:
    assert tool_of(word) == tool


@pytest.mark.parametrize(
    ("head", "needs"),
    [
        ("allowed-tools: mcp__capd__a__x, mcp__b", SkillNeeds(("b",), ("a__x",))),
        ("allowed-tools: Bash(git add, mcp__capd__a__x, mcp__b), Read", SkillNeeds()),
        ("allowed-tools: [mcp__capd__a__x, Read]", SkillNeeds((), ("a__x",))),
        ("capd: git mine/files-edit", SkillNeeds(("git", "mine/files-edit"))),
        ("capd: [git, a__x]", SkillNeeds(("git",), ("a__x",))),
        ("metadata:\n  capd: git, time\n  author: me", SkillNeeds(("git", "time"))),
        ("metadata:\n  capd:\n    git: yes", SkillNeeds()),
        ("metadata: git", SkillNeeds()),
        ("capabilities: git", SkillNeeds(("git",))),
        ("capd: git\ncapabilities: git", SkillNeeds(("git",))),
        ("capd: ../git git/../x -x /x $(x) `x`", SkillNeeds()),
        ("description: none of it", SkillNeeds()),
    ],
)
def test_a_head_names_tools_and_capabilities(head: str, needs: SkillNeeds) -> None:
    assert skill_needs(skill(head)) == needs


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no head", "does not begin with"),
        (b"---\nname: \xff\n---\nx", "not UTF-8"),
        (b"---\na: [" + b"[" * 9000 + b"\n---\nx", "frontmatter"),
        (b"x" * (LARGEST_BYTES + 1), "larger than"),
        (b"---\n" + b"x" * 20_000 + b"\n---\nx", "closes the frontmatter"),
    ],
)
def test_an_unreadable_skill_names_nothing_and_says_why(content: bytes, reason: str) -> None:
    needs = skill_needs(content)

    assert needs.is_empty
    assert reason in needs.error


def test_a_skill_names_no_more_than_there_is_room_for() -> None:
    tools = ", ".join(f"mcp__capd__s__t{each}" for each in range(500))
    names = ", ".join(f"c{each}" for each in range(500))

    needs = skill_needs(skill(f"allowed-tools: {tools}\ncapd: {names}"))

    assert (len(needs.tools), len(needs.capabilities)) == (MOST_TOOLS, MOST_CAPABILITIES)


@given(st.binary(max_size=400) | st.text(max_size=400).map(skill))
def test_whatever_a_file_holds_its_names_are_plain(content: bytes) -> None:
    needs = skill_needs(content)

    for name in (*needs.capabilities, *needs.tools):
        assert name == name.strip()
        assert not {*name} & {*" \n\t*()`$;&|<>\\\"'"}
        assert ".." not in name.split("/")


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("/tidy the harbour", ["tidy"]),
        ("please $tidy", ["tidy"]),
        ("@tidy.", ["tidy"]),
        ("use the Tidy skill now", ["tidy"]),
        ("with skill tidy, please", ["tidy"]),
        ("tidy the harbour", []),
        ("look at /etc/tidy and src/tidy", []),
        ("/tidy/boats is a folder", []),
        ("untidy", []),
        ("run paint-walls", ["paint-walls"]),
        ("run harbour:paint", ["harbour:paint"]),
        ("repaint-walls", []),
        ("", []),
        ("the skill", []),
    ],
)
def test_a_message_names_a_skill_by_a_mark_or_by_a_name_of_parts(
    message: str, named: list[str]
) -> None:
    assert named_in(message, ["tidy", "paint-walls", "harbour:paint"]) == named


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("run the unit-tests", []),
        ("/unit-tests", ["unit-tests"]),
        ("use the unit-tests skill", ["unit-tests"]),
        ("run paint-walls", ["paint-walls"]),
    ],
)
def test_a_projects_skill_is_used_only_where_the_message_calls_it(
    message: str, named: list[str]
) -> None:
    assert named_in(message, ["unit-tests", "paint-walls"], {"unit-tests"}) == named


@pytest.mark.parametrize("name", ["the", "this", "a", "my", "which", "new", "to", "use"])
def test_a_projects_skill_has_no_name_that_ordinary_messages_hold(name: str) -> None:
    message = f"please use {name} skill, and {name} skills to come; skill {name} or not"

    assert named_in(message, [name], {name}) == []
    assert named_in(f"/{name} now", [name], {name}) == [name]
    assert named_in(message, [name]) == [name]


def test_a_message_uses_a_few_skills_and_the_first_are_taken() -> None:
    skills = [f"skill-{each}" for each in range(9)]

    found = named_in(" ".join(reversed(skills)) + " x" * 50_000, skills)

    assert found == list(reversed(skills))[:MOST_NAMED]


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", "a:b:c", "a" * 101, "-x", "a\n"])
def test_a_name_that_is_none_is_looked_for_nowhere(name: str) -> None:
    assert not is_skill_name(name)


def test_what_came_on_is_told_with_what_did_not() -> None:
    text = brought("tidy", ["a__x", "a__y"], ["b is not trusted"], "By tool_call.")

    assert text == (
        "capd switched on for the skill 'tidy': a__x, a__y. By tool_call.\n"
        "capd could not switch on for the skill 'tidy': b is not trusted"
    )
    assert brought("tidy", [], [], "By tool_call.") == ""
