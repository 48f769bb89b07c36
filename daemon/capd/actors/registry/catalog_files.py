"""Reads the list of taps, the taps and the overlays into one catalog.

    load ──> the new catalog, or else the last good one, with the reason why it is still used
    a file changes ──> load again (if files can be watched)

A tap that cannot be read keeps its last good state, and so does the list of taps. Loads run one
after the other; otherwise an older read could replace a newer one.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
import trio

from capd.adapters.memory_files import read_memories
from capd.adapters.overlay_files import read_overlays
from capd.adapters.parsed_taps import ParsedTaps
from capd.adapters.parsing.jobs import DIRECT, Reader
from capd.adapters.parsing.parser import Parser
from capd.adapters.skill_files import skill_body
from capd.adapters.tap_files import (
    TapUnreadableError,
    is_own,
    read_tap,
    tap_places,
)
from capd.adapters.unchanged_files import UnchangedFiles
from capd.adapters.watched_files import Folders, Watch, WatchError, watched_folders
from capd.core.memories.memory_format import OWN
from capd.core.taps.catalog import Catalog, Tap
from capd.core.taps.overlays import Overlay, overlaid
from capd_protos.types import SkillSpec

TRY_AGAIN = 10.0
"""Seconds after which watching is tried again if it failed."""

log = structlog.get_logger(actor="registry")


class CatalogFiles:
    """The installed capabilities and skills, as their files define them."""

    def __init__(
        self,
        tap_list: Path,
        on_change: Callable[[Catalog], None],
        memories: Path | None = None,
        parser: Parser | None = None,
        *,
        reads: Path | None = None,
        add_triggers: Callable[[Sequence[Tap]], Awaitable[tuple[Tap, ...]]] | None = None,
    ) -> None:
        """Create it. `on_change` is called with the catalog after each load that changes it.

        `memories` is the user's own folder of memories. `parser` reads files that others may have
        written; its results are cached in the file `reads`. `add_triggers` adds the triggers that
        come from the tools of servers (`tool_triggers.py`).
        """
        self._add_triggers = add_triggers
        self._parser = parser
        self.tap_list = tap_list
        self._memories = memories
        self.catalog = Catalog()
        self.list_error = ""
        self.watch_error = ""
        """Why files are not watched; empty if they are."""
        self._on_change = on_change
        self._loading = trio.Lock()
        self._known = ParsedTaps(reads)
        self._overlays: UnchangedFiles[Overlay] = UnchangedFiles()

    async def load(self) -> bool:
        """Read all files again; return whether the catalog has changed."""
        async with self._loading:
            await trio.to_thread.run_sync(self._known.restore)
            taps = await self._taps()
            if taps is None:
                return False
            overlays = await trio.to_thread.run_sync(
                read_overlays, self.tap_list, self._reader(), self._overlays, taps
            )
            said_more = await trio.to_thread.run_sync(overlaid, taps, overlays)
            for finding in said_more.findings:
                log.warning("overlay_finding", path=finding.path, reason=finding.reason)
            with_words = said_more.taps
            if self._add_triggers is not None:
                with_words = await self._add_triggers(with_words)
            found = (*with_words, *await self._own_memories())
            catalog = await trio.to_thread.run_sync(_changed, found, self.catalog)
            self._overlays.sweep()
            await trio.to_thread.run_sync(self._known.keep)
            if catalog is None:
                return False
            self.catalog = catalog
        for tap in taps:
            log.info(
                "tap_loaded",
                tap=tap.name,
                routable=len(tap.capabilities),
                unroutable=len(tap.unroutable),
                skills=len(tap.skills),
                findings=len(tap.findings),
            )
        self._on_change(self.catalog)
        return True

    async def text_of(self, skill: SkillSpec) -> str | None:
        """Read a skill's text from its file; return None if the file is gone or has no text."""
        return await trio.to_thread.run_sync(skill_body, Path(skill.file), self._reader())

    def _reader(self) -> Reader:
        return self._parser.reading() if self._parser is not None else DIRECT

    async def _own_memories(self) -> list[Tap]:
        """Return the user's own memories as a tap, which comes after all others."""
        if self._memories is None:
            return []
        reads, findings = await trio.to_thread.run_sync(read_memories, OWN, self._memories)
        for finding in (*findings, *(each for read in reads for each in read.findings)):
            log.warning("memory_finding", path=finding.path, reason=finding.reason)
        if not reads and not findings:
            return []
        folder = str(self._memories)
        return [Tap(OWN, folder, "", (), {}, tap_findings=findings, memory_reads=reads)]

    async def follow(self) -> None:
        """Load all taps again whenever one of their files changes, until cancelled."""
        while True:
            try:
                await self._follow_once()
            except WatchError as error:
                self.watch_error = f"changes of taps are not followed: {error}"
                log.warning("taps_not_watched", reason=str(error))
                await trio.sleep(TRY_AGAIN)

    async def _follow_once(self) -> None:
        """Load once, watch the files, and return after the next change.

        The caller calls this again, because the change may have replaced watched folders.
        """
        folders = await self._watched()
        async with Watch(folders) as watch:
            self.watch_error = ""
            # Load after the watch has begun; otherwise a change in between would be missed.
            await self.load()
            if folders == await self._watched():
                log.info("taps_watched", folders=len(folders))
                await watch.changed()
                log.info("files_changed")

    async def _watched(self) -> Folders:
        return await trio.to_thread.run_sync(watched_folders, self.tap_list, self._memories)

    async def _taps(self) -> list[Tap] | None:
        """Return every tap.

        None if the list of taps cannot be read and an older one stays in use.
        """
        old = {tap.name: tap for tap in self.catalog.taps}
        try:
            places = await trio.to_thread.run_sync(tap_places, self.tap_list)
        except TapUnreadableError as error:
            self.list_error = str(error)
            log.error("tap_list_unreadable", reason=self.list_error)
            if old:
                return None
            places = await trio.to_thread.run_sync(tap_places, Path("/nonexistent"))
        else:
            self.list_error = ""
        taps: list[Tap] = []
        for place in places:
            try:
                reader = DIRECT if is_own(place, self.tap_list) else self._reader()
                taps.append(await trio.to_thread.run_sync(read_tap, place, reader, self._known))
            except TapUnreadableError as error:
                log.error("tap_unreadable", tap=place.name, reason=str(error))
                last = old.get(place.name) or Tap(place.name, str(place.path), "", (), {})
                taps.append(replace(last, error=str(error)))
        return taps


def _changed(taps: tuple[Tap, ...], before: Catalog) -> Catalog | None:
    """Return the catalog of `taps`; None if it would be the same as `before`."""
    return None if taps == before.taps else Catalog(taps)
