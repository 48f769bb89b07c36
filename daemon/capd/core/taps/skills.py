"""Parses the skills of a tap: texts that tell a model how to do a task.

`skills/<name>/SKILL.md` has front matter with `name`, `description` and `capabilities`, followed by
the text. Clients see each skill as an MCP prompt. The prompt's name contains no `__`, unlike those
of servers' prompts, so the two cannot be equal. If two taps have a skill of the same name, the
first tap's prompt gets the name, and the other one gets the name with a hash at its end.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern
from capd.core.taps.frontmatter import Field, Frontmatter, FrontmatterError, frontmatter
from capd.core.tools.names import LIMIT
from capd_protos.types import Finding, Severity, SkillSpec, TapName, WireName

LARGEST_BYTES = 256 * 1024
"""The most bytes of one SKILL.md: more than any model reads at once."""
LONGEST_DESCRIPTION = 1024
MOST_CAPABILITIES = 32

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_CAPABILITY = lazy_pattern(r"[^\s/]+(/[^\s/]+)?")
_FORBIDDEN = lazy_pattern(r"[^A-Za-z0-9_-]")
_TWO_UNDERSCORES = lazy_pattern(r"__+")
_HASH_DIGITS = 6


@dataclass(frozen=True, slots=True)
class SkillFile:
    """The content of one SKILL.md, and where it was found."""

    folder: str
    """The name of its folder, which is the skill's name if the front matter has none."""
    path: str
    """The path for a person, used in findings."""
    file: str
    """The absolute path of the file, which is read again when the skill is used."""
    content: bytes
    """The file's bytes. If it is too large, only the first `LARGEST_BYTES` + 1 of them."""


@dataclass(frozen=True, slots=True)
class SkillRead:
    """The result of reading one SKILL.md: a skill, or only findings, which name problems."""

    folder: str
    path: str
    skill: SkillSpec | None
    findings: tuple[Finding, ...] = ()
    lines: tuple[int, ...] = ()
    """The line of each of the skill's capabilities."""
    revision: str = ""
    """Content hash of the file."""


class _WrongError(Exception):
    """A SKILL.md contains no valid skill."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.line = line


def read_skill(tap: TapName, file: SkillFile) -> SkillRead:
    """Return the skill that a file defines, or the findings that say why it defines none."""
    findings: list[Finding] = []

    def wrong(reason: str, line: int, severity: Severity = "error") -> None:
        findings.append(Finding(file.path, line, reason, severity))

    try:
        head = _taken_apart(file.content)
    except _WrongError as error:
        wrong(f"left out: {error}", error.line)
        return SkillRead(file.folder, file.path, None, tuple(findings))
    name = head.fields.get("name")
    if name is None or not name.text:
        reason = f"no `name`: it is called {file.folder!r}, as its folder"
        wrong(reason, name.line if name else 1, "warning")
    elif name.text != file.folder:
        reason = f"its name is {name.text[:100]!r}, its folder's {file.folder!r}"
        wrong(reason, name.line, "warning")
    called = name.text if name is not None and name.text else file.folder
    if not _NAME.fullmatch(called):
        reason = (
            f"left out: {called[:100]!r} is not a valid name: use letters, digits, `.`, `_`, `-`"
        )
        wrong(reason, name.line if name else 1)
        return SkillRead(file.folder, file.path, None, tuple(findings))
    description = head.fields.get("description")
    if description is None or not description.text:
        reason = "no `description`: nobody finds it by what it is for"
        wrong(reason, description.line if description else 1, "warning")
    wanted = _capabilities(head.fields.get("capabilities"), wrong)
    skill = SkillSpec(
        tap=tap,
        name=called,
        file=file.file,
        description=_cut(description.text if description else ""),
        capabilities=tuple(wanted),
    )
    revision = hashlib.sha256(file.content).hexdigest()
    return SkillRead(
        file.folder, file.path, skill, tuple(findings), tuple(wanted.values()), revision
    )


def body(content: bytes) -> str | None:
    """Return the text of a skill without its front matter; None if the file is not valid."""
    try:
        return _taken_apart(content).body
    except _WrongError:
        return None


def once_each(reads: Iterable[SkillRead]) -> tuple[SkillRead, ...]:
    """Return the skills of one tap, with a finding in place of any repeated one.

    Of skills with the same name only the first is usable.
    """
    known: dict[str, str] = {}
    kept: list[SkillRead] = []
    for read in reads:
        first = known.setdefault(read.skill.name, read.path) if read.skill else read.path
        if first == read.path:
            kept.append(read)
            continue
        reason = f"left out: {first} has its name already"
        findings = (*read.findings, Finding(read.path, 1, reason))
        kept.append(SkillRead(read.folder, read.path, None, findings))
    return tuple(kept)


def prompt_names(skills: Iterable[SkillSpec]) -> dict[WireName, SkillSpec]:
    """Return the skills by the names of their prompts; `skills` are in the order of the taps."""
    named: dict[WireName, SkillSpec] = {}
    for skill in skills:
        named[_prompt_name(skill, named)] = skill
    return named


def _prompt_name(skill: SkillSpec, taken: Mapping[WireName, SkillSpec]) -> WireName:
    allowed = _TWO_UNDERSCORES.sub("_", _FORBIDDEN.sub("_", skill.name))
    if len(allowed) <= LIMIT and allowed not in taken:
        return WireName(allowed)
    digest = hashlib.sha256(f"{skill.tap}\0{skill.name}".encode()).hexdigest()
    for digits in range(_HASH_DIGITS, len(digest) + 1):
        suffix = "-" + digest[:digits]
        name = WireName(allowed[: LIMIT - len(suffix)] + suffix)
        if name not in taken:
            return name
    raise AssertionError("a whole SHA-256 is taken")


def _taken_apart(content: bytes) -> Frontmatter:
    if len(content) > LARGEST_BYTES:
        raise _WrongError(f"it is larger than {LARGEST_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _WrongError("it is not UTF-8", line) from None
    if "\0" in text:
        raise _WrongError("it is binary", text.count("\n", 0, text.index("\0")) + 1)
    try:
        head = frontmatter(text)
    except FrontmatterError as error:
        raise _WrongError(str(error), error.line) from None
    if not head.body:
        raise _WrongError("there is no text below the frontmatter")
    return head


def _capabilities(field: Field | None, wrong: Callable[[str, int], None]) -> dict[str, int]:
    """Return the names of the capabilities that a skill declares, each with its line."""
    if field is None:
        return {}
    if field.is_odd:
        wrong("`capabilities` holds what is not a name: that is left out", field.line)
    found: dict[str, int] = {}
    for item in field.items:
        words = [item.text.strip()] if field.is_list else item.text.replace(",", " ").split()
        for word in words:
            if _CAPABILITY.fullmatch(word):
                found.setdefault(word, item.line)
            else:
                wrong(f"capability {word[:100]!r} is not a name: left out", item.line)
    if len(found) > MOST_CAPABILITIES:
        reason = f"{len(found)} capabilities: all but the first {MOST_CAPABILITIES} are left out"
        wrong(reason, field.line)
    return dict(list(found.items())[:MOST_CAPABILITIES])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_DESCRIPTION else text[: LONGEST_DESCRIPTION - 1] + "…"
