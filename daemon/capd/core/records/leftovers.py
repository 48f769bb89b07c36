"""Cached files of projects and servers that no longer exist, and when to delete them.

All of them can be created again. The vectors of a project's phrases are kept while the project is
trusted and its folder exists. A server's private folder is kept while the server is started from
time to time.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from capd.core.lazy_patterns import lazy_pattern
from capd.core.records.retention import DAY

PROJECT_DELAY = 7 * DAY
"""If a project is gone or not trusted, its files are kept for this many seconds after their last
use: a person may trust it again, and a disk may be mounted again."""
SERVER_DELAY = 30 * DAY
_VECTORS = lazy_pattern(r"(?:tool_)?vectors\.([0-9a-f]{12})\.(?:bin|graph)")
_IDENTITY = lazy_pattern(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A cached file, or a server's private folder, that may have to be deleted."""

    name: str
    used_at: float
    """When the file was last used, in seconds since the epoch."""
    is_servers: bool = False
    """Whether it is the private folder of a server."""


def project_mark(project: str) -> str:
    """Return the 12 hex digits that stand for a project in the names of its cached files.

    `project` is its real path.
    """
    return hashlib.sha256(project.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def files_to_delete(
    found: Iterable[Leftover], now: float, *, projects: Iterable[str], running: Collection[str]
) -> list[Leftover]:
    """Return which of the files `found` to delete.

    `projects` are the real paths of the projects that are trusted and exist. `running` are the
    identities of running servers. `now` is in seconds since the epoch. If a file's time is in the
    future, it comes from a wrong clock, and the file does not count as old.
    """
    marks = {project_mark(project) for project in projects}
    gone = []
    for each in found:
        age = now - each.used_at
        if each.is_servers:
            is_ours = _IDENTITY.fullmatch(each.name) is not None
            is_over = age > SERVER_DELAY and each.name not in running
        else:
            vectors = _VECTORS.fullmatch(each.name)
            is_ours = vectors is not None
            is_over = age > PROJECT_DELAY and vectors is not None and vectors[1] not in marks
        if is_ours and is_over:
            gone.append(each)
    return gone
