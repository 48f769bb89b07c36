"""The catalogs of projects: what each project's own files add, if they are trusted.

    first session ──> read ──a file or the trust in it changes──> read again
                       └──nothing trusted──> its sessions use the user's catalog

A project's capabilities are in the catalog of its own sessions and in no other. Such a catalog has
vectors of its own, so that messages of other projects are never compared with them.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import structlog
import trio

from capd.actors.registry.catalog_files import TRY_AGAIN
from capd.actors.registry.catalog_vectors import CatalogVectors
from capd.adapters.parsing.jobs import DIRECT
from capd.adapters.parsing.parser import Parser
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.adapters.trust.project_taps import ProjectRead, read_project, watched_folders
from capd.adapters.trust.startable_files import real_path
from capd.adapters.trust.trust_file import TrustFile
from capd.adapters.watched_files import Watch, WatchError
from capd.core.records.leftovers import project_mark
from capd.core.taps.catalog import Catalog, Tap
from capd.runtime.boundary import contained, kept_running

LONGEST_WAIT = 2.0
"""Seconds to wait for a project's files. On a network file system that hangs, sessions start
without them."""
LONGEST_READ = 30.0
"""Seconds for reading all files that a project's servers name; there may be hundreds of large ones.
"""
MOST_PROJECTS = 256
MOST_NAMES = 4096
"""How many paths of projects are remembered."""

log = structlog.get_logger(actor="registry")


@dataclass(slots=True)
class _Project:
    read: ProjectRead
    catalog: Catalog | None = None
    """None if nothing of the project is trusted."""
    vectors: CatalogVectors | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class ProjectCatalogs:
    """The catalogs of projects, by their real paths."""

    def __init__(
        self,
        trust: TrustFile,
        users: Callable[[], Catalog],
        vectors: Callable[[str], CatalogVectors],
        on_change: Callable[[str, Catalog], None],
        reads: TimedReads | None = None,
        *,
        parser: Parser | None = None,
    ) -> None:
        """Create it. `users` returns the user's catalog, which each project's catalog extends.

        `vectors(name)` creates the vectors of one more catalog, saved in a file of that name.
        `on_change` is called with a project and its new catalog. `parser` reads the files of
        projects.
        """
        self._paths = reads or TimedReads(LONGEST_WAIT)
        self._files = reads or TimedReads(LONGEST_READ)
        self._parser = parser
        self._silent: set[str] = set()
        """The projects whose files could not be read in time when all projects were last read."""
        self.trust = trust
        self._users = users
        self._make_vectors = vectors
        self._on_change = on_change
        self._known: dict[str, _Project] = {}
        self._nursery: trio.Nursery | None = None
        self._loaded_one = trio.Event()
        self._reals: dict[str, str] = {}
        """The real path of each path that was asked for."""
        self._loading: dict[str, trio.Event] = {}

    async def run(self, *, is_watching: bool) -> None:
        """Keep vectors up to date, and follow files if `is_watching`, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            if is_watching:
                keep = partial(kept_running, log=log)
                self._nursery.start_soon(keep, "follow projects", self._follow)
            await trio.sleep_forever()

    # What there is

    async def load(self, project: str) -> str:
        """Read a project's files, unless that is done; return the project's real path.

        The path is empty if reading takes more than `LONGEST_WAIT` seconds. Reading then goes on in
        the background.
        """
        real = self.known(project)
        if not real and project in self._loading:
            with trio.move_on_after(LONGEST_WAIT):
                await self._loading[project].wait()
        return self.known(project)

    def known(self, project: str) -> str:
        """Return the real path of a project, empty if it is not known yet.

        If the project's files were not read yet, this call starts reading them.
        """
        real = self._reals.get(project, "")
        is_here = real in self._known or project in self._loading
        if project and not is_here and self._nursery is not None:
            self._loading[project] = trio.Event()
            self._nursery.start_soon(self._load, project)
        return real

    async def _load(self, project: str) -> None:
        try:
            await contained("load project", self._load_files, project, log=log)
        finally:
            self._loading.pop(project).set()

    async def _load_files(self, project: str) -> None:
        try:
            real = await self._paths.of(project, partial(real_path, project))
            if real not in self._known:
                await self._read(real)
        except NoAnswerError as error:
            # The project's sessions start without its files. The next request for it tries again.
            log.warning("project_not_read", reason=str(error))
            return
        if len(self._reals) >= MOST_NAMES:
            self._reals.clear()
        # The finder names a project by its tap, which is named by the real path.
        self._reals[project] = self._reals[real] = real
        self._loaded_one.set()

    def catalog(self, project: str) -> Catalog:
        """Return the catalog for sessions of a project, given by its real path."""
        known = self._known.get(project)
        return known.catalog if known is not None and known.catalog is not None else self._users()

    def find(self, project: str) -> tuple[Catalog, CatalogVectors | None] | None:
        """Return a project's catalog, and its vectors if it has any.

        None if its sessions use the user's catalog. None, too, if its files were not read yet; this
        call then starts reading them.
        """
        known = self._known.get(self.known(project))
        if known is None or known.catalog is None:
            return None
        return known.catalog, known.vectors

    @property
    def taps(self) -> Iterator[Tap]:
        """The taps that projects define. What is not trusted in them is marked as unusable."""
        for known in self._known.values():
            usable = known.read.usable
            if usable is not None:
                yield usable

    @property
    def errors(self) -> dict[str, str]:
        """Why the files of projects cannot be read, by project."""
        return {name: known.read.error for name, known in self._known.items() if known.read.error}

    def read(self, project: str) -> ProjectRead:
        """Return what was last read of a project's files; nothing if the project is not known."""
        return self._known[project].read if project in self._known else ProjectRead(project)

    # What changes

    async def reload(self) -> None:
        """Read every known project again.

        Of a project that cannot be read in time, only the trust in it is read again.
        """
        self._silent = set()
        async with trio.open_nursery() as nursery:
            for name in list(self._reals):
                nursery.start_soon(self._reload_name, name)
        async with trio.open_nursery() as nursery:
            for project in list(self._known):
                nursery.start_soon(self._reload_project, project)

    async def _reload_name(self, name: str) -> None:
        try:
            # A symbolic link may lead elsewhere now.
            real = await self._paths.of(name, partial(real_path, name))
            if real not in self._known:
                await self._read(real)
        except NoAnswerError:
            self._silent.add(name)
        else:
            self._reals[name] = self._reals[real] = real

    async def _reload_project(self, project: str) -> None:
        if project not in self._silent:
            try:
                await self._read(project)
            except NoAnswerError:
                self._silent.add(project)
            else:
                return
        # The trust file is not in the project, so it can be read even if the project hangs.
        trusted = await trio.to_thread.run_sync(self.trust.read)
        read = self.read(project)
        self._take(project, replace(read, agreed=dict(trusted.of(project))))

    def users_changed(self) -> None:
        """Take over a change of the user's catalog, which every project's catalog includes."""
        for project, known in self._known.items():
            self._adopt(project, known.read, is_other=True)

    async def _read(self, project: str) -> None:
        reader = self._parser.reading() if self._parser is not None else DIRECT
        read = partial(read_project, project, self.trust, reader)
        self._take(project, await self._files.of(project, read))

    def _take(self, project: str, read: ProjectRead) -> None:
        known = self._known.get(project)
        before = known.read.usable if known is not None else None
        self._adopt(project, read, is_other=before != read.usable)
        if before != read.usable:
            log.info(
                "project_read",
                project=project,
                usable=len(read.usable.capabilities) if read.usable is not None else 0,
                servers=len(read.startables),
            )
            self._on_change(project, self.catalog(project))

    def _adopt(self, project: str, read: ProjectRead, *, is_other: bool) -> None:
        if project not in self._known and len(self._known) >= MOST_PROJECTS:
            self._forget_one()
        known = self._known.setdefault(project, _Project(read))
        known.read = read
        if not is_other:
            return
        usable = read.usable
        if usable is None or not usable.capabilities:
            # Memories alone need no vectors. A tap whose definitions are unusable stays in the
            # catalog, because it has the reason why its capabilities cannot be activated.
            known.catalog = None if usable is None else Catalog((*self._users().taps, usable))
            known.scope.cancel()
            known.vectors = None
            return
        known.catalog = Catalog((*self._users().taps, usable))
        if known.vectors is None and self._nursery is not None:
            known.scope = trio.CancelScope()
            known.vectors = self._make_vectors(project_mark(project))
            self._nursery.start_soon(self._keep_vectors, known.vectors, known.scope)
        if known.vectors is not None:
            known.vectors.catalog_changed(known.catalog)

    async def _keep_vectors(self, vectors: CatalogVectors, scope: trio.CancelScope) -> None:
        with scope:
            await contained("project vectors", vectors.follow, log=log)

    def _forget_one(self) -> None:
        """Forget the project that was read first, if possible one that adds nothing."""
        bare = (name for name, known in self._known.items() if known.catalog is None)
        oldest = next(bare, next(iter(self._known)))
        self._known.pop(oldest).scope.cancel()

    # Files that change

    async def _follow(self) -> None:
        while True:
            await self._follow_once()

    async def _follow_once(self) -> None:
        self._loaded_one = trio.Event()
        reads = [known.read for known in self._known.values()]
        folders: dict[Path, frozenset[str] | None] = {}
        for read in reads:
            with suppress(NoAnswerError):
                folders.update(await self._files.of(read.project, partial(watched_folders, read)))
        try:
            async with Watch(folders) as watch, trio.open_nursery() as nursery:
                # Read after the watch has begun; otherwise a change in between would be missed.
                await self.reload()
                if reads != [known.read for known in self._known.values()]:
                    return
                nursery.start_soon(self._wait_ready, nursery.cancel_scope)
                if self._silent:
                    nursery.start_soon(self._cancel_later, nursery.cancel_scope)
                await watch.changed()
                nursery.cancel_scope.cancel()
        except* WatchError as errors:
            log.warning("projects_not_watched", reason=str(errors.exceptions[0]))
            await trio.sleep(TRY_AGAIN)

    async def _wait_ready(self, scope: trio.CancelScope) -> None:
        await self._loaded_one.wait()
        scope.cancel()

    async def _cancel_later(self, scope: trio.CancelScope) -> None:
        """Wait, then cancel `scope`, which watches files; the caller then reads all files again.

        Files that could not be read cannot be watched either, so no event would announce a change.
        """
        await trio.sleep(TRY_AGAIN)
        scope.cancel()
