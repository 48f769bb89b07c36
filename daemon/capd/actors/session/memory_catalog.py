"""The memories of all projects that have a session, with the tokens and the effects of each.

    a session opens ──> its project's memories are loaded ──> priced by bytes ──> by tokens
    a file changes ──> the memories of all projects are loaded again

The price of a memory is the number of its tokens; until they are counted, it is the number of its
bytes, which is never smaller. The effects of each memory are counted and saved: how often it was
delivered, how many calls it refused, and how many of the calls that followed worked.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Protocol

import structlog
import trio

from capd.actor_clients.registry import RegistryClient
from capd.adapters.mistake_checks import MistakeChecks
from capd.adapters.timed_reads import TimedReads
from capd.adapters.tokens.counted_texts import Counts, NotCountedError
from capd.core.memories.known_memories import KnownMemories, known_memories, texts_of
from capd.core.memories.lessons import Lessons
from capd.core.memories.outcomes import Outcomes
from capd.runtime.boundary import contained
from capd.runtime.bus import ActorUnavailableError, Bus
from capd.runtime.saver import Saver, not_saved
from capd_protos import curator as messages
from capd_protos.types import MemorySpec

ASK_TIMEOUT = 3.0
"""Seconds. A session that is not answered in time starts without its memories."""
MOST_PROJECTS = 256
"""Projects whose memories are kept. One that has a session is never dropped."""
SAVE_PAUSE = 0.5

NO_MEMORIES = KnownMemories()

log = structlog.get_logger(actor="curator")


class OutcomeStore(Protocol):
    """Saves and loads how often each memory was delivered, refused calls, and helped."""

    @property
    def problem(self) -> str:
        """Why the saved counts of memories cannot be used; empty if they can."""
        ...

    async def load(self) -> Outcomes:
        """Return the saved counts of each memory: delivered, calls refused, and helped."""
        ...

    async def save(self, outcomes: Outcomes, /) -> bool:
        """Save how often memories were delivered, refused calls, and helped.

        Return whether that worked.
        """
        ...


class MemoryCatalog:
    """The memories of all sessions, by project."""

    def __init__(
        self, bus: Bus, counts: Counts | None = None, store: OutcomeStore | None = None
    ) -> None:
        """Create it.

        Without `counts` the price of a memory is its bytes, an upper bound of its tokens.
        """
        self._registry = RegistryClient(bus)
        self._counts = counts
        self._store = store
        self.checks = MistakeChecks()
        self.reads = TimedReads()
        self.lessons = Lessons()
        self.outcomes = Outcomes()
        self._listed: dict[str, tuple[MemorySpec, ...]] = {}
        self.known: dict[str, KnownMemories] = {}
        """The memories for sessions of each project; only this class changes it."""
        self._counted: dict[bytes, int] = {}
        self.open_projects: Callable[[], Collection[str]] = tuple
        """Returns the projects that have a session. Their memories are never dropped."""
        # False without `counts` and after a failed count: prices in bytes are then final.
        self._is_able = counts is not None
        self._is_stale = trio.Event()
        self._saver = Saver(self._save, pause=SAVE_PAUSE)

    @property
    def problem(self) -> str:
        """Why the counts of memories could not be loaded, or will be lost at a restart.

        Empty if neither.
        """
        if self._saver.refused:
            return not_saved("what came of memories")
        return self._store.problem if self._store is not None else ""

    async def load(self) -> None:
        """Load how often memories were delivered and helped, as an earlier daemon saved it."""
        if self._store is not None:
            self.outcomes = await self._store.load()

    async def run(self, on_refresh: Callable[[], None]) -> None:
        """Follow changes of memories, and save their counts, until cancelled.

        `on_refresh` is called when sessions may have other memories.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._follow, on_refresh)
            nursery.start_soon(self._saver.run)

    async def load_project(self, project: str) -> None:
        """Load the memories of a project, unless they are loaded, before its session opens."""
        if project in self._listed:
            # Moved to the end, where it is dropped last: its session is not open yet.
            self._listed[project] = self._listed.pop(project)
        else:
            await self._ask(project)

    async def reload_project(self, project: str) -> None:
        """Load the memories of a project again."""
        await self._ask(project)

    def changed(self) -> None:
        """Have the memories of all projects loaded again soon."""
        self._is_stale.set()

    def save_soon(self) -> None:
        """Have the counts of memories (how often each was delivered, and helped) saved soon."""
        if self._store is not None:
            self._saver.changed("outcomes")

    async def counted(self, texts: list[bytes]) -> dict[bytes, int]:
        """Return the number of tokens of each text; a text that cannot be counted is missing."""
        if self._counts is None:
            return {}
        try:
            return await self._counts.counted(texts)
        except NotCountedError as error:
            log.warning("texts_not_counted", reason=str(error))
            return error.counts

    async def described(self, project: str) -> messages.MemoriesDescribed:
        """Load all memories again; return those of `project`, with how often each helped.

        The reply also has the lessons from failed calls that may become memories.
        """
        await self._ask(project)
        await self._ask_for_all()
        await self._count()
        return messages.MemoriesDescribed(
            [
                messages.MemoryEntry(
                    each.memory,
                    each.priced.tokens,
                    *self.outcomes.of(each.memory),
                )
                for each in self.known.get(project, NO_MEMORIES).all
            ],
            [
                messages.LessonEntry(
                    lesson.server, lesson.tool, lesson.content, lesson.schema, count
                )
                for lesson, count in self.lessons.proposals()
            ],
        )

    async def _ask(self, project: str) -> None:
        try:
            reply = await self._registry.memories(project, timeout=ASK_TIMEOUT)
        except ActorUnavailableError as error:
            log.warning("memories_not_asked", reason=str(error))
            return
        memories = tuple(reply.memories)
        if memories == self._listed.get(project):
            return
        if project not in self._listed and len(self._listed) >= MOST_PROJECTS:
            wanted = self.open_projects()
            oldest = next((each for each in self._listed if each not in wanted), None)
            if oldest is not None:
                del self._listed[oldest], self.known[oldest]
        self._listed[project] = memories
        self._put(project)
        self._is_stale.set()

    def _put(self, project: str) -> None:
        self.known[project] = known_memories(
            self._listed[project], self._counted, is_final=not self._is_able
        )

    async def _follow(self, on_refresh: Callable[[], None]) -> None:
        while True:
            await self._is_stale.wait()
            self._is_stale = trio.Event()
            await contained("memories", self._refresh, log=log)
            on_refresh()

    async def _ask_for_all(self) -> None:
        async with trio.open_nursery() as nursery:
            for project in {*self._listed, *self.open_projects()}:
                nursery.start_soon(partial(contained, log=log), "memories", self._ask, project)

    async def _refresh(self) -> None:
        await self._ask_for_all()
        refusing = [each for of in self._listed.values() for each in of if each.refuses]
        if refusing:
            # In a thread: the library takes a tenth of a second, which would delay calls.
            await trio.to_thread.run_sync(self.checks.prepare, refusing)
        await self._count()

    async def _count(self) -> None:
        specs = (each for listed in self._listed.values() for each in listed)
        texts = {text for each in specs for text in texts_of(each)}
        if self._counts is None or texts <= self._counted.keys():
            return
        self._counted = await self.counted(sorted(texts))
        self._is_able = texts <= self._counted.keys()
        for project in self._listed:
            self._put(project)

    async def _save(self, _: str) -> bool:
        return self._store is None or await self._store.save(self.outcomes)
