"""Reads a project's own capabilities, and tells which of them are trusted at this moment."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from capd.adapters.memory_files import MEMORIES
from capd.adapters.parsing.jobs import DIRECT, Reader
from capd.adapters.regular_files import is_folder
from capd.adapters.tap_files import TapPlace, TapUnreadableError, read_tap
from capd.adapters.trust.startable_files import startables_of
from capd.adapters.trust.trust_file import TrustFile
from capd.core.taps.catalog import Tap
from capd.core.trust.project_tap import (
    FOLDER,
    MOST_CAPABILITIES,
    MOST_SERVERS,
    bind_servers,
    memories_of,
    servers_of,
    tap_name,
    trusted_part,
)
from capd.core.trust.startable import TRUSTED, Agreement, Startable

_PARTS = ("capabilities", MEMORIES)


@dataclass(frozen=True, slots=True)
class ProjectRead:
    """The capabilities that a project's files define, and the part that a person trusts."""

    project: str
    tap: Tap | None = None
    """Everything that the project defines; None if it defines nothing."""
    startables: Sequence[Startable] = ()
    """The project's servers and memories, each with the digests of its files."""
    agreed: dict[str, Agreement] = field(default_factory=dict)
    """The records of what a person trusts in this project, by digest."""
    error: str = ""
    """Why its files cannot be read; empty if they can."""

    @property
    def usable(self) -> Tap | None:
        """The part of the tap that the project's sessions may use; None if there is none."""
        if self.tap is None:
            return None
        trusted = [each.server for each in self.startables if each.state(self.agreed) == TRUSTED]
        return trusted_part(self.tap, trusted)


def read_project(project: str, trust: TrustFile, reader: Reader = DIRECT) -> ProjectRead:
    """Return what a project, given by its real path, defines. Starts and downloads nothing.

    `trust` is the record of what a person trusts. `reader` parses the project's files.
    """
    folder = Path(project, FOLDER)
    try:
        if not any((folder / part).is_dir() for part in _PARTS):
            return ProjectRead(project)
        if (folder / "capabilities").is_dir():
            _check_size(folder / "capabilities")
        place = TapPlace(tap_name(project), folder, within=Path(project))
        tap = bind_servers(read_tap(place, reader), project)
    except TapUnreadableError as error:
        return ProjectRead(project, error=str(error))
    except OSError as error:
        return ProjectRead(project, error=f"{folder}: {error.strerror}")
    servers = servers_of(tap)
    if len(servers) > MOST_SERVERS:
        reason = f"{folder} defines {len(servers)} servers: {MOST_SERVERS} at most can be looked at"
        return ProjectRead(project, error=reason)
    startables = startables_of(servers)
    told = memories_of(tap)
    if told is not None:
        startables.append(told)
    return ProjectRead(project, tap, startables, dict(trust.read().of(project)))


def _check_size(folder: Path) -> None:
    """Check that the folder has few enough entries to be read quickly.

    Raises:
        TapUnreadableError: it has too many.
    """
    with os.scandir(folder) as entries:
        if len(list(islice(entries, MOST_CAPABILITIES + 1))) > MOST_CAPABILITIES:
            reason = f"{folder} has more than {MOST_CAPABILITIES} entries"
            raise TapUnreadableError(reason)


def watched_folders(read: ProjectRead) -> dict[Path, frozenset[str] | None]:
    """Return the folders to watch for changes of the definitions of the project `read`.

    The value of each folder is the set of names to watch in it; None stands for all names.
    """
    root = Path(read.project)
    found: dict[Path, frozenset[str] | None] = {root: frozenset({FOLDER})}
    capabilities = root / FOLDER / "capabilities"
    below = [root / FOLDER, capabilities, root / FOLDER / MEMORIES]
    with contextlib.suppress(OSError):
        below += sorted(islice((p for p in capabilities.iterdir() if p.is_dir()), 300))
    found.update({folder: None for folder in below if is_folder(folder)})
    for each in read.startables:
        for name in each.files:
            file = Path(read.project, name)
            known = found.get(file.parent, frozenset())
            found[file.parent] = None if known is None else known | {file.name}
    return found
