"""Computes digests of the files that a project's server names.

A file counts if its path, as named or after following links, is inside the project. capd reads its
bytes once, for a digest. The interpreter reads them again when the server starts. So the
supervisor, the actor that starts servers, checks the digest again when the server has answered its
handshake.
"""

import errno
import hashlib
import os
from collections.abc import Iterable

from capd.adapters.regular_files import opened_regular
from capd.core.folders import is_below
from capd.core.trust.named_files import MOST_NAMES, named_files
from capd.core.trust.startable import Startable
from capd_protos.types import ServerSpec

LARGEST_BYTES = 64 << 20
MOST_OF_A_PROJECT = 20_000
"""The most paths that a project's servers may name together; one may name `MOST_NAMES`."""
_CHUNK_BYTES = 1 << 20
_NO_FILE = frozenset(
    {errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR, errno.ENXIO}
)


def real_path(project: str) -> str:
    """Return the real path of a project: absolute, and with all links resolved."""
    try:
        return os.path.realpath(project) if project else ""
    except ValueError:
        # A NUL in the name: no folder has one, and so nothing is found there.
        return project


def startables_of(servers: Iterable[ServerSpec]) -> list[Startable]:
    """Return the servers of one project, each with the digests of the files that it names.

    If they name too many files together, the last ones get a reason instead of digests.
    """
    found: list[Startable] = []
    left = MOST_OF_A_PROJECT
    for server in servers:
        left -= len(named_files(server, server.project)) if left > 0 else 0
        if left > 0:
            found.append(startable(server))
        else:
            reason = "the project's definitions name too many files to look at them all"
            found.append(Startable(server, server.project, {}, reason))
    return found


def startable(server: ServerSpec) -> Startable:
    """Return a project's `server` with the present digests of the project files that it names."""
    project = server.project
    files: dict[str, str] = {}
    problem = ""
    names = named_files(server, project)
    if len(names) > MOST_NAMES:
        problem = "its definition names too many files to look at them all"
    for name in names:
        path = os.path.normpath(os.path.join(project, os.path.expanduser(name)))  # noqa: PTH111, PTH118 - text to text, two thousand times
        real = os.path.realpath(path)
        if not (is_below(path, project) or is_below(real, project)):
            continue
        try:
            digest = digest_of(path)
        except OSError as error:
            problem = f"{path} cannot be read: {error.strerror}"
            continue
        if digest:
            shown = os.path.relpath(path, project) if is_below(path, project) else path
            files[shown] = digest if real == path else f"{digest} at {real}"
    return Startable(server, project, files, problem)


def digest_of(path: str) -> str:
    """Return the SHA-256 of a file; empty if nothing is there, or it is a folder or a socket.

    Raises:
        OSError: it is a pipe or a device, has more than 64 MiB, or cannot be read.
    """
    try:
        with opened_regular(path) as (descriptor, status):
            return _hashed(descriptor, status.st_size)
    except OSError as error:
        if error.errno in _NO_FILE:
            return ""
        raise


def _hashed(descriptor: int, size_bytes: int) -> str:
    if size_bytes > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_BYTES >> 20} MiB")
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
