"""Finds the skills of clients such as Claude Code, and reads which tools a skill names.

    ~/.claude/skills, ~/.agents/skills, ~/.agents      skills of the user
    PROJECT/.claude/skills, .agents/skills, .agents    skills of the project
    ~/.agents/plugins/PLUGIN/skills                    skills of a plugin, called PLUGIN:NAME
    FOLDER/skills                                      skills of a plugin; each FOLDER is named in
                                                       ~/.claude/plugins/installed_plugins.json

Each skill is a folder with a SKILL.md. If the user and the project have a skill of the same name,
the user's is used. The user's folders may contain links. A link that leads out of a project or a
plugin is not followed.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from capd.adapters.parsing.jobs import DIRECT, Reader, ReadSkillNeeds
from capd.adapters.regular_files import opened_inside, opened_regular, read_up_to
from capd.core.sessions.client_skills import SkillNeeds, is_skill_name
from capd.core.taps.skills import LARGEST_BYTES

SKILL_FILE = "SKILL.md"
MOST_ENTRIES = 1000
"""The most entries of one folder that are read."""
MOST_PLUGINS = 200
LARGEST_LIST_BYTES = 1 << 20
_FOLDERS = (".claude/skills", ".agents/skills", ".agents")
_PLUGINS = "installed_plugins.json"


class _Installed(msgspec.Struct):
    installPath: str = ""  # noqa: N815 - Claude Code's own word


class _PluginList(msgspec.Struct):
    plugins: dict[str, list[_Installed]] = {}


Stamp = tuple[str, str, int, int, int, int]
"""The root, path, mtime, ctime, size and inode of a skill's file. A changed file has another stamp.
"""


@dataclass(frozen=True, slots=True)
class ClientSkill:
    """A skill of a client: its name, and where its SKILL.md is."""

    name: str
    file: Path
    root: Path | None
    """The folder that must contain the file after links are resolved; None for a user's skill."""
    is_of_project: bool = False
    """Whether it is in the project, whose files a stranger may have written."""


@dataclass(frozen=True, slots=True)
class SkillFolders:
    """The user's home folder and Claude Code's folder: the user's skills are below them."""

    home: Path
    claude: Path
    """Claude Code's folder: `~/.claude`, or what CLAUDE_CONFIG_DIR says."""


def client_skills(folders: SkillFolders, project: str) -> dict[str, ClientSkill]:
    """Return every skill of the user and of `project`, by the name that its client calls it by.

    Blocks: run it in a thread.
    """
    found: dict[str, ClientSkill] = {}
    own = [folders.claude / "skills", *(folders.home / each for each in _FOLDERS[1:])]
    for folder in own:
        for name in _skill_folders(folder):
            skill = ClientSkill(name, folder / name / SKILL_FILE, None)
            found.setdefault(name, skill)
    for plugin, root in _plugins(folders):
        for name in _skill_folders(root / "skills"):
            called = f"{plugin}:{name}"
            found.setdefault(called, ClientSkill(called, root / "skills" / name / SKILL_FILE, root))
    if project:
        root = Path(project)
        for folder in (root / each for each in _FOLDERS):
            for name in _skill_folders(folder):
                file = folder / name / SKILL_FILE
                found.setdefault(name, ClientSkill(name, file, root, is_of_project=True))
    return {name: skill for name, skill in found.items() if is_skill_name(name)}


def stamp_of(skill: ClientSkill) -> Stamp | None:
    """Return the stamp of a skill's file, which changes with the file. Blocks.

    Return None if there is no file.
    """
    try:
        status = skill.file.stat()
    except (OSError, ValueError):
        return None
    times = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
    # The root is part of the stamp, because links are followed only for a user's skill.
    return (str(skill.root), str(skill.file), *times)


def read_needs(skill: ClientSkill, reader: Reader = DIRECT) -> SkillNeeds:
    """Return the tools and capabilities that a skill names, or why it cannot be read. Blocks.

    `reader` parses the skill's file.
    """
    try:
        if skill.root is None:
            with opened_regular(skill.file) as (descriptor, _):
                content = read_up_to(descriptor, LARGEST_BYTES)
        else:
            with opened_inside(skill.root, skill.file) as descriptor:
                content = read_up_to(descriptor, LARGEST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return SkillNeeds(error=reason)
    return reader.read(ReadSkillNeeds(content))


def _skill_folders(folder: Path) -> list[str]:
    """Return the names of the folders in `folder` that have a SKILL.md, sorted."""
    with suppress(OSError), os.scandir(folder) as entries:
        names = sorted(each.name for each in islice(entries, MOST_ENTRIES))
        # `Path.exists` raises an error for a folder that may not be entered.
        return [name for name in names if os.path.exists(folder / name / SKILL_FILE)]  # noqa: PTH110
    return []


def _plugins(folders: SkillFolders) -> Iterator[tuple[str, Path]]:
    """Yield the name and the folder of each of the user's plugins."""
    with suppress(OSError, msgspec.MsgspecError, RecursionError):
        with opened_regular(folders.claude / "plugins" / _PLUGINS) as (descriptor, _):
            listed = msgspec.json.decode(
                read_up_to(descriptor, LARGEST_LIST_BYTES), type=_PluginList
            )
        for plugin, places in islice(listed.plugins.items(), MOST_PLUGINS):
            for place in places[:1]:
                if place.installPath:
                    yield plugin.partition("@")[0], Path(place.installPath)
    folder = folders.home / ".agents/plugins"
    with suppress(OSError), os.scandir(folder) as entries:
        for name in sorted(each.name for each in islice(entries, MOST_PLUGINS)):
            yield name, folder / name
