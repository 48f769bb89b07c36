"""Finds the cached files of projects and the cache folders of servers, and removes unused ones.

No link is followed: a link that a server has put into its folder is itself removed.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog

from capd.adapters.trust.trust_file import TrustFile
from capd.core.records.leftovers import Leftover

log = structlog.get_logger()


class LeftoverFiles:
    """Finds and removes a daemon's cached files that belong to a project or a server."""

    def __init__(self, cache: Path, trust: TrustFile) -> None:
        self._cache = cache
        self._sandboxes = cache / "sandbox"
        self._trust = trust

    def found(self) -> list[Leftover]:
        """Return this user's files in the cache folder, and the cache folders of servers. Blocks.

        `core/records/leftovers` tells which of the files belong to a project.
        """
        return [*self._listed(self._cache), *self._listed(self._sandboxes, is_servers=True)]

    def projects(self) -> list[str]:
        """Return the trusted projects that exist. Blocks.

        Raises:
            OSError: the record of trusted projects cannot be read.
        """
        trusted = self._trust.read()
        if trusted.problem:
            raise OSError(trusted.problem)
        return [project for project in trusted.projects if Path(project).is_dir()]

    def remove(self, gone: Iterable[Leftover]) -> None:
        """Remove the files in `gone`, except those that were used in the meantime. Blocks.

        A file that cannot be removed is logged. The next day's run tries it again.
        """
        for each in gone:
            path = (self._sandboxes if each.is_servers else self._cache) / each.name
            try:
                if path.lstat().st_mtime != each.used_at:
                    # Used since it was found.
                    continue
                if each.is_servers:
                    shutil.rmtree(path)
                else:
                    path.unlink()
            except OSError as error:
                log.warning("leftover_not_removed", file=each.name, reason=str(error))

    def _listed(self, folder: Path, *, is_servers: bool = False) -> Iterator[Leftover]:
        wanted = stat.S_ISDIR if is_servers else stat.S_ISREG
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if wanted(found.st_mode) and found.st_uid == os.getuid():
                yield Leftover(entry.name, found.st_mtime, is_servers=is_servers)
