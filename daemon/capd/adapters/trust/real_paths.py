"""The real paths of projects, found beside all else and remembered for one that does not answer."""

from collections.abc import Callable

from capd.adapters.patient_reads import NoAnswerError, PatientReads
from capd.adapters.trust.startable_files import real_path

MOST_NAMES = 4096


class RealPaths:
    """The one path of each project, whatever links lead to it."""

    def __init__(
        self, reads: PatientReads | None = None, resolve: Callable[[str], str] = real_path
    ) -> None:
        """`resolve` blocks for as long as the file system does."""
        self._reads = reads or PatientReads()
        self._resolve = resolve
        self._found: dict[str, str] = {}
        self._is_fresh: set[str] = set()

    async def of(self, project: str) -> str:
        """Return a project's real path as it was found since `forget`; else find it."""
        if project in self._is_fresh:
            return self._found[project]
        return await self.again(project)

    async def again(self, project: str) -> str:
        """Return a project's real path; where it does not answer, what was found last."""
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
        """Have every path found again, for a link may lead elsewhere by now."""
        self._is_fresh.clear()
