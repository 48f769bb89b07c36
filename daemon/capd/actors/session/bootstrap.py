"""Gives a project's own files to the model when a conversation begins.

    the first message of a conversation ──prompt hook──> the files, up to a hook's size limit
    a client that asks for the prompt ──> all of them, in full

The settings name these files, which are called bootstrap files. They are read each time, so the
model gets their current content. They count as delivered once they are in an answer that the client
reads. If reading them takes too long, they are not delivered.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial

import msgspec
import structlog

from capd.adapters.bootstrap_files import read_bootstrap
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.core.memories.bootstrap import DESCRIPTION, PROMPT, Bootstrap, BootstrapRules
from capd.core.sessions.session_place import SessionPlace

log = structlog.get_logger(actor="curator")


def this_day() -> date:
    """Return today's date in this machine's time zone."""
    return datetime.now(UTC).astimezone().date()


class Bootstrapping:
    """Gives one session's model the project's bootstrap files when a conversation begins.

    The settings name these files.
    """

    __slots__ = ("_place", "_reads", "_rules", "_today")

    def __init__(
        self,
        place: SessionPlace,
        rules: Callable[[], BootstrapRules],
        reads: TimedReads,
        today: Callable[[], date] = this_day,
    ) -> None:
        """Create it. `rules` is called at each delivery, and says which files to deliver.

        `reads` bounds the wait for a project on a network file system that hangs.
        """
        self._place = place
        self._rules = rules
        self._reads = reads
        self._today = today

    @property
    def is_on(self) -> bool:
        """Whether a model gets this project's bootstrap files when a conversation begins."""
        return self._rules().is_on and bool(self._place.project)

    async def words(self) -> str:
        """Return the text of the bootstrap files that a hook gives the model, up to its limit."""
        if not self.is_on:
            return ""
        found = await self._found()
        return found.shown(self._rules().hook_characters) if found is not None else ""

    def entry(self) -> list[bytes]:
        """Return the bootstrap files' entry in `prompts/list`; empty if they are switched off."""
        entry = {"name": PROMPT, "title": "Project files", "description": DESCRIPTION}
        return [msgspec.json.encode(entry)] if self.is_on else []

    async def prompt(self) -> bytes | None:
        """Return the bootstrap files as a result of `prompts/get`.

        None if they are switched off, or cannot be read in time.
        """
        found = await self._found() if self.is_on else None
        if found is None:
            return None
        text = found.text or "This project has none of the bootstrap files."
        message = {"role": "user", "content": {"type": "text", "text": text}}
        return msgspec.json.encode({"description": DESCRIPTION, "messages": [message]})

    async def _found(self) -> Bootstrap | None:
        rules, project = self._rules(), self._place.project
        wanted = rules.wanted(self._today())
        try:
            found = await self._reads.of(project, partial(read_bootstrap, project, wanted))
        except NoAnswerError as error:
            log.warning("bootstrap_not_read", session=self._place.key, reason=str(error))
            return None
        log.info(
            "bootstrap_read",
            session=self._place.key,
            files=[each.path for each in found.files],
            count=len(found.files),
            characters=found.characters,
            hash=found.digest,
            left_out=found.left_out,
        )
        if found.characters > rules.most_characters:
            log.warning(
                "bootstrap_too_long",
                session=self._place.key,
                characters=found.characters,
                most=rules.most_characters,
                files=found.largest(),
            )
        return found
