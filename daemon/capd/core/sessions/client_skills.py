"""Skills of the client itself: which tools a skill needs, and whether a message names a skill.

When the client uses a skill, capd switches on the tools and capabilities that the frontmatter of
its SKILL.md names:

    ---
    name: tidy
    allowed-tools: mcp__capd__git__git_log, Bash(git add:*)      a tool, as its client names it
    metadata:
      capd: git, files-edit                                      capabilities, for capd alone
    ---

The frontmatter itself may also have a field `capd` or `capabilities`, with the same meaning. capd
ignores all other fields.
"""

import re
from collections.abc import Collection

import msgspec

from capd.core.lazy_patterns import lazy_pattern
from capd.core.taps.frontmatter import Field, FrontmatterError, frontmatter
from capd.core.taps.skills import LARGEST_BYTES

MOST_CAPABILITIES = 32
MOST_TOOLS = 64
LONGEST_NAME = 200
MOST_OF_A_MESSAGE = 20_000
"""The most characters of a message that are searched for a skill's name."""
MOST_NAMED = 3
"""How many skills one message can name; further ones are ignored."""
_BESIDE_SKILL = frozenset(
    re.findall(
        r"\w+",
        "a all also an and another any are as at be best both but by can create do each every first"
        " for from get good has have help here how i if in into is it its last like list make many"
        " me more my new next no not of on one only or other our own please read right run same see"
        " show skill skills so some such that the their then there these they this to two up use"
        " used uses using was we what when where which who why will with write you your",
    )
)
"""Common words. In a message such as `the skill`, one of them does not name a project's skill."""

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(:[A-Za-z0-9][A-Za-z0-9._-]{0,99})?")
_CAPABILITY = lazy_pattern(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_ARGUMENTS = lazy_pattern(r"\([^()]*\)")
_OF_CAPD = lazy_pattern(r"(mcp__|mcp_)?capd(__|[-_:/.]+)")
_TOOL = lazy_pattern(r"[A-Za-z0-9][\w.-]*?__[\w.-]+")
_ANOTHER_WORD = lazy_pattern(r"(?<![\w/.\\-])[/$@]?[A-Za-z0-9][A-Za-z0-9._:-]*(?!/)")


class SkillNeeds(msgspec.Struct, frozen=True):
    """The tools and capabilities that the frontmatter of a client's skill names."""

    capabilities: tuple[str, ...] = ()
    """The capabilities, as `name` or `tap/name`, in the skill's order."""
    tools: tuple[str, ...] = ()
    """The tools, by the names under which clients know them: `git__git_log`."""
    error: str = ""
    """Why the frontmatter cannot be read; empty if it can."""

    @property
    def is_empty(self) -> bool:
        """Whether the skill names no tool and no capability of capd."""
        return not self.capabilities and not self.tools


def is_skill_name(name: str) -> bool:
    """Tell whether `name` has the form of a client's skill: `tidy`, or `plugin:tidy`."""
    return _NAME.fullmatch(name) is not None


def skill_needs(content: bytes) -> SkillNeeds:
    """Return the tools and capabilities that a SKILL.md with this content names."""
    if len(content) > LARGEST_BYTES:
        return SkillNeeds(error=f"it is larger than {LARGEST_BYTES // 1024} KiB")
    try:
        head = frontmatter(content.decode())
    except UnicodeDecodeError:
        return SkillNeeds(error="it is not UTF-8")
    except FrontmatterError as error:
        return SkillNeeds(error=str(error))
    capabilities: dict[str, None] = {}
    tools: dict[str, None] = {}
    declared = [head.fields.get("capd"), head.fields.get("capabilities")]
    metadata = head.fields.get("metadata")
    declared.append(metadata.members.get("capd") if metadata is not None else None)
    for field in declared:
        for word in _words(field):
            if _TOOL.fullmatch(word):
                tools[word] = None
            elif _CAPABILITY.fullmatch(word):
                capabilities[word] = None
    for word in _words(head.fields.get("allowed-tools")):
        named = tool_of(word)
        if named.endswith("__*"):
            capabilities[named.removesuffix("__*")] = None
        elif named:
            tools[named] = None
    return SkillNeeds(tuple(capabilities)[:MOST_CAPABILITIES], tuple(tools)[:MOST_TOOLS])


def tool_of(word: str) -> str:
    """Return capd's name for the tool in an entry of `allowed-tools`.

    The name is the one that capd gives the tool for clients, without a client's prefix. `SERVER__*`
    stands for all tools of a server. A client's own tools, such as `Read`, and capd's own tools,
    such as `tool_search`, give an empty name.

        mcp__capd__git__git_log, capd-git__git_log, mcp__git__git_log   git__git_log
        mcp__git, mcp__git__*                                           git__*
    """
    name = word[:LONGEST_NAME]
    of_capd = _OF_CAPD.match(name)
    if of_capd is not None:
        name = name[of_capd.end() :]
        # capd's own tools have no part before a double underscore.
        return name if _is_tool(name) else ""
    if not name.startswith("mcp__"):
        return ""
    name = name.removeprefix("mcp__")
    if "__" not in name and name != "capd" and _CAPABILITY.fullmatch(name):
        name += "__*"
    return name if _is_tool(name) else ""


def _is_tool(name: str) -> bool:
    return (
        _TOOL.fullmatch(name.removesuffix("*") + "x" if name.endswith("__*") else name) is not None
    )


def _words(field: Field | None) -> list[str]:
    """Return the words of a frontmatter field, a text or a list.

    Text in parentheses is left out.
    """
    if field is None:
        return []
    found: list[str] = []
    for item in field.items:
        found += _ARGUMENTS.sub("", item.text).replace(",", " ").split()
    return [word for word in found if len(word) <= LONGEST_NAME]


def named_in(message: str, skills: Collection[str], of_project: Collection[str] = ()) -> list[str]:
    """Return those of `skills` that a message names, in the message's order, at most three.

    `/tidy`, `$tidy` and `@tidy` name the skill `tidy`, and so do `the tidy skill` and `skill tidy`.
    A name of several parts, such as `tidy-boats` or `harbour:tidy`, is no common word, so it is
    enough by itself. This does not hold for `of_project`, the skills that come with the project: a
    stranger may have named one `unit-tests`, a word of ordinary messages. If such a skill has a
    common word as its name, such as `the`, only the mark names it, as in `/the`.
    """
    if not skills:
        return []
    known = {name.lower(): name for name in reversed(list(skills))}
    words = [each.rstrip(".:-") for each in _ANOTHER_WORD.findall(message[:MOST_OF_A_MESSAGE])]
    found: dict[str, None] = {}
    for at, word in enumerate(words):
        name = known.get(word.lstrip("/$@").lower())
        if name is None:
            continue
        beside = {each.lower() for each in (*words[max(0, at - 1) : at], *words[at + 1 : at + 2])}
        is_common = name in of_project and name.lower() in _BESIDE_SKILL
        is_beside = not is_common and bool(beside & {"skill", "skills"})
        is_called = word[0] in "/$@" or is_beside
        if is_called or (name not in of_project and any(mark in name for mark in "-_:")):
            found[name] = None
    return list(found)[:MOST_NAMED]


def brought(skill: str, names: Collection[str], failed: Collection[str], how: str) -> str:
    """Return the text for a model about a skill's tools; empty if there is nothing to say.

    `names` are the tools that were switched on. `failed` has a reason for each tool that was not.
    `how` is a sentence on how to call tools that are not on the client's list yet.
    """
    lines: list[str] = []
    if names:
        lines.append(f"capd switched on for the skill '{skill}': {', '.join(names)}. {how}".strip())
    if failed:
        lines.append(f"capd could not switch on for the skill '{skill}': {'; '.join(failed)}")
    return "\n".join(lines)
