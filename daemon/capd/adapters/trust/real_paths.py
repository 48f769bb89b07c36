"""The real paths of projects, looked up in threads and cached."""

from collections.abc import Callable

from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.adapters.trust.startable_files import real_path

MOST_NAMES = 4096


class RealPaths:
    """The real path of each project, whatever links lead to it."""

    def __init__(
        self, reads: TimedReads | None = None, resolve: Callable[[str], str] = real_path
    ) -> None:
        """Create an empty table of paths; `reads` limits how long a lookup may take.

        `resolve` returns a real path, and blocks as long as the file system does.
        """
        self._reads = reads or TimedReads()
        self._resolve = resolve
        self._found: dict[str, str] = {}
        self._is_fresh: set[str] = set()

    async def of(self, project: str) -> str:
        """Return a project's real path, from memory if it was found since `forget`."""
        if project in self._is_fresh:
            return self._found[project]
        return await self.again(project)

    async def again(self, project: str) -> str:
        """Find a project's real path again; return the last one if the disk does not answer."""
        if not project:
            return ""
        try:
            real = await self._reads.of(project, lambda: self._resolve(project))
        except NoAnswerError:
            real = self._found.get(project, project)
        if len(self._found) >= MOST_NAMES:
            self._found.clear()
            self._is_fresh.clear()
        self._found[project] = real
        self._is_fresh.add(project)
        return real

    def forget(self) -> None:
        """Have every path found again when it is next needed, because links may have changed."""
        self._is_fresh.clear()
