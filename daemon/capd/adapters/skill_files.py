"""Skills on disk: `skills/<name>/SKILL.md` of a tap. Nothing here is a rule.

What cannot be read is a finding: a skill is never a reason to be without its tap. A folder
without SKILL.md is no skill, and says nothing.
"""

import os
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from capd.adapters.file_texts import file_name
from capd.core.taps.skills import LARGEST_BYTES, SkillFile, SkillRead, body, once_each, read_skill
from capd_protos.types import Finding, TapName

SKILLS = "skills"
SKILL_FILE = "SKILL.md"
MOST_SKILLS = 1000
"""Of one tap; each costs a parse at every load."""
MOST_ENTRIES = 10_000
"""Of the folder `skills`, whatever they are."""


def read_skills(tap: TapName, root: Path) -> tuple[tuple[SkillRead, ...], tuple[Finding, ...]]:
    """Return the skills of the tap at `root`, and what is wrong with their folder."""
    findings: list[Finding] = []
    try:
        with os.scandir(root / SKILLS) as entries:
            names = sorted(entry.name for entry in islice(entries, MOST_ENTRIES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return (), ()
    except OSError as error:
        return (), (Finding(SKILLS, 0, f"no skill is read: {error.strerror}"),)
    if len(names) > MOST_ENTRIES:
        reason = f"more than {MOST_ENTRIES} entries: some are not looked at"
        findings.append(Finding(SKILLS, 0, reason))
    found = list(islice(_files(tap, root, names), MOST_SKILLS + 1))
    if len(found) > MOST_SKILLS:
        reason = f"more than {MOST_SKILLS} skills: those from {found[-1].folder!r} on are left out"
        findings.append(Finding(SKILLS, 0, reason))
    return once_each(found[:MOST_SKILLS]), tuple(findings)


def skill_body(file: Path) -> str | None:
    """Return the text of a skill as it is at this moment; None where it cannot be read."""
    try:
        return body(_content(file))
    except OSError:
        return None


def _files(tap: TapName, root: Path, names: list[str]) -> Iterator[SkillRead]:
    for name in names:
        file = root / SKILLS / name / SKILL_FILE
        folder = file_name(Path(name))
        path = f"{SKILLS}/{folder}/{SKILL_FILE}"
        try:
            # What cannot be sent cannot be read when it is used.
            str(file).encode()
            content = _content(file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except UnicodeEncodeError:
            yield SkillRead(folder, path, None, (Finding(path, 0, "left out: no UTF-8 path"),))
            continue
        except OSError as error:
            finding = Finding(path, 0, f"left out: {error.strerror or error}")
            yield SkillRead(folder, path, None, (finding,))
            continue
        yield read_skill(tap, SkillFile(folder, path, str(file), content))


def _content(file: Path) -> bytes:
    # Non-blocking: opening a pipe must not wait for a writer.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is not a regular file")
        return opened.read(LARGEST_BYTES + 1)
