"""Skills as prompts, and as hits of a search."""

from capd.core.sessions.skill_prompts import FoundSkill, Switched, found_skills, prompt, skill_text
from capd_protos.types import SkillSpec, TapName, WireName


def test_a_skill_without_description_is_a_prompt_without_one() -> None:
    skill = SkillSpec(TapName("t"), "a.b", "/t/SKILL.md")

    entry = prompt(WireName("a_b"), skill)

    assert entry == b'{"name":"a_b","title":"a.b"}'


def test_where_all_fails_the_text_says_so() -> None:
    text = skill_text("Do it.", [Switched("git", "Server 'git' broke.", is_ok=False)])

    head = "capd could not switch on what this skill declares:"
    assert text == f"Do it.\n\n---\n{head}\n- Server 'git' broke."


def test_found_skills_are_named_as_they_are_enabled() -> None:
    hits = [
        FoundSkill(WireName("review"), "Walks\nthrough.", ("git",)),
        FoundSkill(WireName("long"), "x" * 300, ()),
    ]

    said = found_skills(hits)

    assert said.splitlines()[1:] == [
        "Skills, instructions for a kind of task, that may fit:",
        "- skill:review: Walks through. [uses git]",
        f"- skill:long: {'x' * 199}…",
        "Read one, and switch on what it uses, with action enable and its name.",
    ]
    assert found_skills([]) == ""
