"""Skills: what a SKILL.md defines, its errors, and its prompt name."""

import pytest

from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd.core.taps.skills import (
    LARGEST_BYTES,
    LONGEST_DESCRIPTION,
    SkillFile,
    SkillRead,
    body,
    once_each,
    prompt_names,
    read_skill,
)
from capd.core.taps.tap_format import CapabilityRead
from capd.core.taps.unmatched_filters import unknown_capabilities
from capd_protos.types import (
    CapabilityId,
    CapabilityName,
    CapabilitySpec,
    Finding,
    SkillSpec,
    TapName,
)

MINE, OTHER = TapName("mine"), TapName("other")
PATH = "skills/review/SKILL.md"
GOOD = "---\nname: review\ndescription: Reviews a change.\ncapabilities: git time\n---\nDo it.\n"


def read(content: str | bytes, folder: str = "review", tap: TapName = MINE) -> SkillRead:
    data = content.encode() if isinstance(content, str) else content
    return read_skill(tap, SkillFile(folder, PATH, "/t/SKILL.md", data))


def skill(name: str = "review", tap: TapName = MINE, *capabilities: str) -> SkillSpec:
    return SkillSpec(tap, name, "/t/SKILL.md", "Reviews a change.", capabilities)


def test_a_skill_is_known_by_its_tap_and_name() -> None:
    found = read(GOOD)

    assert (found.skill, found.findings) == (skill("review", MINE, "git", "time"), ())
    assert found.lines == (4, 4)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("capabilities: git", ("git",)),
        ("capabilities: git, mine/time  git", ("git", "mine/time")),
        ("capabilities: [git, mine/time]", ("git", "mine/time")),
        ("capabilities:\n  - git\n  - time", ("git", "time")),
        ("capabilities:", ()),
        ("x: y", ()),
    ],
)
def test_capabilities_are_words_or_a_list(written: str, expected: tuple[str, ...]) -> None:
    found = read(f"---\nname: review\ndescription: d\n{written}\n---\nbody")

    assert found.skill is not None
    assert (found.skill.capabilities, found.findings) == (expected, ())


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"\x89PNG\r\n\x1a\n\x00", 1, "left out: it is not UTF-8"),
        (b"---\nname: x\n---\na\n\x00", 5, "left out: it is binary"),
        (b"x" * (LARGEST_BYTES + 1), 0, "left out: it is larger than 256 KiB"),
        (b"---\nname: review\n---\n \n", 0, "left out: there is no text below the frontmatter"),
        (
            b"# Review\n",
            1,
            "left out: it does not begin with a line `---`, so it has no frontmatter",
        ),
    ],
)
def test_what_is_no_skill_is_left_out_with_line_and_reason(
    content: bytes, line: int, reason: str
) -> None:
    found = read(content)

    assert (found.skill, found.findings) == (None, (Finding(PATH, line, reason),))
    assert body(content) is None


@pytest.mark.parametrize(
    ("head", "finding"),
    [
        (
            "description: d",
            Finding(PATH, 1, "no `name`: it is called 'review', as its folder", "warning"),
        ),
        (
            "name: other\ndescription: d",
            Finding(PATH, 2, "its name is 'other', its folder's 'review'", "warning"),
        ),
        (
            "name: review",
            Finding(PATH, 1, "no `description`: nobody finds it by what it is for", "warning"),
        ),
        (
            "name: review\ndescription: d\ncapabilities:\n- a b\n- git",
            Finding(PATH, 5, "capability 'a b' is not a name: left out"),
        ),
        (
            "name: review\ndescription: d\ncapabilities: {a: b}",
            Finding(PATH, 4, "`capabilities` holds what is not a name: that is left out"),
        ),
    ],
)
def test_what_is_odd_is_reported_and_the_skill_stays(head: str, finding: Finding) -> None:
    found = read(f"---\n{head}\n---\nbody")

    assert found.skill is not None
    assert found.findings == (finding,)


@pytest.mark.parametrize("name", ["../etc", "a b", "-x", "é", "x" * 101])
def test_a_name_that_is_none_leaves_the_skill_out(name: str) -> None:
    found = read(f"---\nname: {name}\ndescription: d\n---\nbody", folder=name)

    assert found.skill is None
    assert "is not a valid name" in found.findings[-1].reason


def test_a_long_name_is_not_repeated_whole() -> None:
    found = read(f"---\nname: {'x' * 9000}\ndescription: d\n---\nbody")

    assert found.skill is None
    assert len(found.findings) == 2
    assert all(len(each.reason) < 300 for each in found.findings)


def test_a_long_description_is_cut() -> None:
    found = read(f"---\nname: review\ndescription: {'x' * 5000}\n---\nbody")

    assert found.skill is not None
    assert len(found.skill.description) == LONGEST_DESCRIPTION


def test_of_two_skills_of_one_name_the_first_counts() -> None:
    first = read(GOOD)
    second = SkillRead("zz", "skills/zz/SKILL.md", skill())

    kept = once_each([first, second])

    reason = f"left out: {PATH} has its name already"
    finding = Finding("skills/zz/SKILL.md", 1, reason)
    assert kept == (first, SkillRead("zz", "skills/zz/SKILL.md", None, (finding,)))


def test_two_taps_skills_of_one_name_are_both_there_and_the_first_has_the_name() -> None:
    named = prompt_names([skill(), skill(tap=OTHER), skill("a__b"), skill("a.b")])

    first, second, third, fourth = named
    assert list(named.values()) == [skill(), skill(tap=OTHER), skill("a__b"), skill("a.b")]
    assert (first, third) == ("review", "a_b")
    assert second.startswith("review-")
    assert fourth.startswith("a_b-")


def test_a_prompts_name_can_be_no_servers() -> None:
    named = prompt_names([skill("x" * 100), skill("_".join("ab" * 20) + "____c")])

    assert all(len(name) <= 64 and "__" not in name for name in named)


def catalog(*taps: Tap) -> Catalog:
    return Catalog(taps)


def tap(name: TapName, skills: tuple[SkillRead, ...], *capabilities: str) -> Tap:
    reads = tuple(
        CapabilityRead(
            CapabilityName(each),
            CapabilitySpec(CapabilityId(name, CapabilityName(each)), "default"),
            "",
            (),
        )
        for each in capabilities
    )
    return Tap(name, f"/{name}", "0" * 12, reads, {}, skill_reads=skills)


def test_a_skill_is_found_by_its_prompts_name_and_by_tap_and_name() -> None:
    known = catalog(tap(MINE, (read(GOOD),)), tap(OTHER, (read(GOOD, tap=OTHER),)))

    found = [known.find_skill(name) for name in ("review", "other/review", "reviw")]

    (_, mine), (other_prompt, other) = list(known.skills.items())
    assert found == [
        ("review", mine),
        (other_prompt, other),
        Unknown("no tap has a skill 'reviw'", ("review",)),
    ]


def test_a_capability_that_no_tap_has_is_a_finding_where_the_skill_names_it() -> None:
    head = "---\nname: review\ndescription: d\ncapabilities:\n- git\n- gti\n- other/time\n---\nb"
    mine, other = tap(MINE, (read(head),), "git"), tap(OTHER, (), "time")

    findings = unknown_capabilities(mine, catalog(mine, other))

    reason = "capability 'gti' cannot be switched on: no tap has a capability 'gti'"
    assert findings == (Finding(PATH, 6, f"{reason} (near names: git)"),)
