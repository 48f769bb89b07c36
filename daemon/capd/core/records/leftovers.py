"""What is left in the cache of projects and servers that are gone, and when it goes.

Everything here can be made again. A project's vectors are of use while somebody agrees to its
files and its folder is there; a server's private folder as long as the server is started now and
then.
"""

import hashlib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from capd.core.records.retention import DAY

OF_PROJECTS = 7 * DAY
"""An agreement may be asked for again, and a disk be mounted."""
OF_SERVERS = 30 * DAY
_VECTORS = re.compile(r"(?:tool_)?vectors\.([0-9a-f]{12})\.bin")
_IDENTITY = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file of the cache, or a server's folder there."""

    name: str
    used_at: float
    """Seconds since the epoch."""
    is_servers: bool = False
    """Whether it is the private folder of a server."""


def project_mark(project: str) -> str:
    """Return what names the files of a project, by its real path."""
    return hashlib.sha256(project.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def swept(
    found: Iterable[Leftover], now: float, *, projects: Iterable[str], running: Collection[str]
) -> list[Leftover]:
    """Return what goes.

    `projects` are agreed to, and there; `running` are the identities of servers that run. A time
    in the future is of a clock that was wrong, and makes nothing old.
    """
    marks = {project_mark(project) for project in projects}
    gone = []
    for each in found:
        age = now - each.used_at
        if each.is_servers:
            is_ours = _IDENTITY.fullmatch(each.name) is not None
            is_over = age > OF_SERVERS and each.name not in running
        else:
            vectors = _VECTORS.fullmatch(each.name)
            is_ours = vectors is not None
            is_over = age > OF_PROJECTS and vectors is not None and vectors[1] not in marks
        if is_ours and is_over:
            gone.append(each)
    return gone
