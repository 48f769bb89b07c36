"""A skill as an MCP prompt, followed by a report on the capabilities that it has switched on."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from capd.core.sessions.own_tools import ECHO_CHARACTERS, echo
from capd.core.taps.catalog import Unknown
from capd_protos.types import SkillSpec, WireName

PREFIX = "skill:"
"""The prefix of a skill's name wherever a name may be that of a capability or of a skill."""


@dataclass(frozen=True, slots=True)
class Switched:
    """The outcome of switching on one of a skill's capabilities, with a text about it."""

    name: str
    text: str
    is_ok: bool


@dataclass(frozen=True, slots=True)
class FoundSkill:
    """A skill that fits a search, by the name under which clients know its prompt."""

    name: WireName
    description: str
    capabilities: Sequence[str]

    def line(self) -> str:
        """Return `- skill:NAME: DESCRIPTION [uses CAPABILITY, ...]`, with the description cut."""
        needs = f" [uses {', '.join(self.capabilities)}]" if self.capabilities else ""
        about = " ".join(self.description.split())
        cut = about if len(about) <= ECHO_CHARACTERS else about[: ECHO_CHARACTERS - 1] + "…"
        return f"- {PREFIX}{self.name}: {cut}{needs}"


def found_skills(hits: Sequence[FoundSkill]) -> str:
    """Return the text about skills that fit, to put below a search's hits; empty for none."""
    if not hits:
        return ""
    lines = "\n".join(hit.line() for hit in hits)
    return (
        f"\nSkills, instructions for a kind of task, that may fit:\n{lines}\n"
        "Read one, and switch on what it uses, with action enable and its name."
    )


def prompt(name: WireName, skill: SkillSpec) -> bytes:
    """Return the skill's entry in `prompts/list`, as JSON."""
    entry = {"name": name, "title": skill.name}
    if skill.description:
        entry["description"] = skill.description
    return msgspec.json.encode(entry)


def prompt_result(skill: SkillSpec, text: str) -> bytes:
    """Return the result of `prompts/get`: the text as the user's own message."""
    message = {"role": "user", "content": {"type": "text", "text": text}}
    described = {"description": skill.description} if skill.description else {}
    return msgspec.json.encode({**described, "messages": [message]})


def skill_text(body: str, switched: Sequence[Switched]) -> str:
    """Return a skill's text, followed by a line for each capability that it declares."""
    if not switched:
        return body
    lines = "\n".join(f"- {each.text}" for each in switched)
    head = "capd has switched on what this skill declares:"
    if not all(each.is_ok for each in switched):
        head = "capd could not switch on all that this skill declares; the rest works:"
    if not any(each.is_ok for each in switched):
        head = "capd could not switch on what this skill declares:"
    return f"{body}\n\n---\n{head}\n{lines}"


def no_room(name: str, cap: int) -> str:
    """Return the text about a capability of a skill that stays off because of the limit `cap`.

    Switching it on would evict another capability of the same skill. `cap` is the most capabilities
    with tools that may be on.
    """
    return (
        f"Capability {echo(name)} was left off: this skill's other capabilities fill the {cap} "
        "places of this session."
    )


def out_of_time(name: str) -> str:
    """Return the text about a capability of a skill that took too long to switch on."""
    return (
        f"Capability {echo(name)} is not on yet: it took too long. Switch it on with the tool "
        "`capability`, action enable."
    )


def unknown_skill(name: str, why: Unknown) -> str:
    """Return the answer for a name that means no usable skill; `why` has the reason."""
    near = f" Near names: {', '.join(why.near)}." if why.near else ""
    return f"Skill {echo(name)} cannot be used: {why.reason}.{near}"
