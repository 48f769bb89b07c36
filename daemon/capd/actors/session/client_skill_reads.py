"""Reads the skills of clients, for all sessions."""

from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path

import structlog

from capd.adapters.client_skill_files import (
    ClientSkill,
    SkillFolders,
    Stamp,
    client_skills,
    read_needs,
    stamp_of,
)
from capd.adapters.parsing.jobs import DIRECT, Reader
from capd.adapters.parsing.parser import Parser
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.core.sessions.client_skills import SkillNeeds

READ_PATIENCE = 1.0
"""Seconds for the folders of skills; a message does not wait longer for them."""
PARSE_PATIENCE = 10.0
"""Seconds for one skill. The first one may have to wait for the start of the parser process."""
MOST_KEPT = 512
"""The most skills whose needs are cached: the tools and capabilities that their texts name."""
MOST_READ_AHEAD = 100

log = structlog.get_logger(actor="curator")


class ClientSkillReads:
    """Reads the skills in the folders of clients, such as `~/.claude/skills`, for all sessions."""

    def __init__(self, folders: SkillFolders | None = None, parser: Parser | None = None) -> None:
        """Create it. Without `folders` there are no skills.

        `parser` reads files that others may have written.
        """
        self._folders = folders
        self._parser = parser
        self._reads = TimedReads(READ_PATIENCE)
        self._parses = TimedReads(PARSE_PATIENCE)
        self._kept: dict[Stamp, SkillNeeds] = {}

    async def read_ahead(self, project: str) -> None:
        """Read the user's and a project's skills, so that no message has to wait for that."""
        for skill in islice((await self.known(project)).values(), MOST_READ_AHEAD):
            await self.needs(skill)

    async def known(self, project: str) -> Mapping[str, ClientSkill]:
        """Return the user's and a project's skills by name.

        No skills are returned if reading the folders takes longer than `READ_PATIENCE`.
        """
        if self._folders is None:
            return {}
        try:
            return await self._reads.of(project, partial(client_skills, self._folders, project))
        except NoAnswerError as error:
            log.info("skills_not_read", project=project, reason=str(error))
            return {}

    async def needs(self, skill: ClientSkill) -> SkillNeeds:
        """Return the tools and capabilities that a skill's text names, or why it cannot be read."""
        reader: Reader = self._parser.reading() if self._parser is not None else DIRECT
        try:
            return await self._parses.of(str(skill.file), partial(self._needs, skill, reader))
        except NoAnswerError as error:
            return SkillNeeds(error=str(error))

    def _needs(self, skill: ClientSkill, reader: Reader) -> SkillNeeds:
        stamp = stamp_of(skill)
        if stamp is not None and stamp in self._kept:
            return self._kept[stamp]
        needs = read_needs(skill, reader)
        if stamp is not None and not needs.error:
            self._kept[stamp] = needs
            while len(self._kept) > MOST_KEPT:
                self._kept.pop(next(iter(self._kept)), None)
        return needs


def skill_folders(environment: Mapping[str, str]) -> SkillFolders:
    """Return the folders of a user's skills."""
    home = Path(environment.get("HOME") or Path.home())
    return SkillFolders(home, Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude"))
