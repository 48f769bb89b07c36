"""Reads skills from disk: `skills/<name>/SKILL.md` of a tap.

An unreadable skill is reported, and the tap is used without it. A folder without SKILL.md is
ignored.
"""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from capd.adapters.file_texts import file_name
from capd.adapters.parsing.jobs import DIRECT, Reader, ReadSkill, ReadSkillText
from capd.adapters.regular_files import opened_inside
from capd.core.taps.skills import LARGEST_BYTES, SkillFile, SkillRead, once_each
from capd_protos.types import Finding, TapName

SKILLS = "skills"
SKILL_FILE = "SKILL.md"
MOST_SKILLS = 1000
"""The most skills of one tap, because each is parsed at every load."""
MOST_ENTRIES = 10_000
"""The most entries of the folder `skills` that are looked at, whatever they are."""


def read_skills(
    tap: TapName, root: Path, reader: Reader = DIRECT
) -> tuple[tuple[SkillRead, ...], tuple[Finding, ...]]:
    """Return the skills of the tap at `root`, and the problems of their folder.

    `tap` is the tap's name, and `reader` parses the files. Links that lead out of `root` are not
    followed, because a skill's text is given to a model.
    """
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
    found = list(islice(_files(tap, root, names, reader), MOST_SKILLS + 1))
    if len(found) > MOST_SKILLS:
        reason = f"more than {MOST_SKILLS} skills: those from {found[-1].folder!r} on are left out"
        findings.append(Finding(SKILLS, 0, reason))
    if reader.is_spent:
        findings.append(Finding(SKILLS, 0, "some are left out: they take too long to read"))
    return once_each(found[:MOST_SKILLS]), tuple(findings)


def skill_body(file: Path, reader: Reader = DIRECT) -> str | None:
    """Return the present text of the skill in `file`; None if it cannot be read.

    `reader` parses the file.
    """
    try:
        # The parents of `<tap>/skills/<name>/SKILL.md` are the skill, `skills` and the tap.
        content = _content(file.parents[2], file)
    except OSError:
        return None
    return reader.read(ReadSkillText(content)).text


def _files(tap: TapName, root: Path, names: list[str], reader: Reader) -> Iterator[SkillRead]:
    for name in names:
        if reader.is_spent:
            return
        file = root / SKILLS / name / SKILL_FILE
        folder = file_name(Path(name))
        path = f"{SKILLS}/{folder}/{SKILL_FILE}"
        try:
            # Raises if the path is not valid Unicode, which no message of capd can contain.
            str(file).encode()
            content = _content(root, file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except UnicodeEncodeError:
            yield SkillRead(folder, path, None, (Finding(path, 0, "left out: no UTF-8 path"),))
            continue
        except OSError as error:
            finding = Finding(path, 0, f"left out: {error.strerror or error}")
            yield SkillRead(folder, path, None, (finding,))
            continue
        yield reader.read(ReadSkill(tap, SkillFile(folder, path, str(file), content)))


def _content(root: Path, file: Path) -> bytes:
    with opened_inside(root, file, "the tap") as descriptor:
        return os.read(descriptor, LARGEST_BYTES + 1)
