"""Watches the files from which a catalog is made.

It watches only the folders that are read, each without its subfolders, so that large folders such
as `.git` cost nothing. For a missing folder, the nearest existing parent is watched. Changes that
another machine makes on a network file system are not noticed; use `capd reload` for them.
"""

import importlib.util
import os
import sys
import threading
from collections.abc import Mapping
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Self

import trio

from capd.adapters.overlay_files import overlay_folders
from capd.adapters.regular_files import is_folder
from capd.adapters.tap_files import STARTER, TapUnreadableError, tap_places
from capd.core.errors import CapdError
from capd.core.taps.tap_vectors import FILE as VECTORS
from capd.core.taps.tool_snapshot import FILE as SNAPSHOT

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

MOST_FOLDERS = 8192
"""The kernel allows a user at least 8,192 watches. Further folders are not followed."""
MOST_OF_ONE = 2048
"""The most entries of one folder that are searched for subfolders."""
QUIET_MS = 500
"""Changes that follow each other within this time count as one, because a checkout writes hundreds.
The waiting thread also wakes up this often."""
LONGEST_MS = 5000

Folders = Mapping[Path, frozenset[str] | None]
"""Folders, each with the names in it that matter; None for all names."""

_PARTS_OF_A_TAP = ("capabilities", "skills", "deps", "memories")
_FILES_OF_A_TAP = (SNAPSHOT, VECTORS)
"""Files that `capd tap build` writes into the folder of a tap."""


class WatchError(CapdError):
    """Files cannot be watched; the text says why."""


def watched_folders(list_file: Path, memories: Path | None = None) -> Folders:
    """Return the folders of the user's taps, overlays and memories, which are to be watched.

    `list_file` is the list of taps, and `memories` the folder of memories.
    """
    found: dict[Path, frozenset[str] | None] = {}
    _add(found, list_file.parent, list_file.name)
    if memories is not None:
        _add(found, memories)
    try:
        roots = [place.path for place in tap_places(list_file) if place.name != STARTER]
    except TapUnreadableError:
        # The list is unreadable; its own change is watched.
        roots = []
    for root in roots:
        for part in _PARTS_OF_A_TAP:
            _add(found, root, part)
            _add_below(found, root / part)
        for name in _FILES_OF_A_TAP:
            _add(found, root, name)
    _add_below(found, list_file.parent / "overlays")
    for folder in overlay_folders(list_file):
        _add(found, folder)
        _add(found, folder / "capabilities")
    return dict(islice(found.items(), MOST_FOLDERS))


def _add_below(found: dict[Path, frozenset[str] | None], folder: Path) -> None:
    _add(found, folder)
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, MOST_OF_ONE) if entry.is_dir()]
    except OSError:
        return
    for name in sorted(names):
        _add(found, folder / name)


def _add(found: dict[Path, frozenset[str] | None], folder: Path, name: str = "") -> None:
    """Add to `found` that `folder` is to be watched for all changes, or for those of `name` alone.

    A folder that does not exist is replaced by its nearest parent that does, which is then watched
    for the name that is missing there.
    """
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - keeps symlinks
    while not is_folder(folder):
        if folder == folder.parent:
            return
        name, folder = folder.name, folder.parent
    known = found.get(folder, frozenset())
    found[folder] = None if not name or known is None else known | {name}


class Watch:
    """Watches folders inside an `async with` block."""

    def __init__(self, folders: Folders) -> None:
        self._folders = folders
        self._stopped = threading.Event()
        self._backend: RustNotify | None = None

    async def __aenter__(self) -> Self:
        """Start watching the folders.

        Raises:
            WatchError: the kernel refuses.
        """
        # In a thread: a network folder may not answer.
        try:
            self._backend = await trio.to_thread.run_sync(
                _watching, list(self._folders), abandon_on_cancel=True
            )
        except (OSError, RuntimeError) as error:
            raise WatchError(str(error)) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop watching. A thread that waits for changes ends within `QUIET_MS` milliseconds."""
        self._stopped.set()

    async def changed(self) -> None:
        """Wait until a watched name has changed, and no further change follows for a moment.

        Raises:
            WatchError: changes are not reported any longer.
        """
        await trio.to_thread.run_sync(self._wait, abandon_on_cancel=True)

    def _wait(self) -> None:
        assert self._backend is not None
        while not self._stopped.is_set():
            try:
                heard = self._backend.watch(LONGEST_MS, QUIET_MS, 0, self._stopped)
            except (OSError, RuntimeError) as error:
                raise WatchError(str(error)) from None
            if isinstance(heard, set) and any(self._counts(Path(path)) for _, path in heard):
                return

    def _counts(self, path: Path) -> bool:
        if path in self._folders:
            return True
        names = self._folders.get(path.parent, frozenset())
        return names is None or path.name in names


def _watching(folders: list[Path]) -> "RustNotify":
    return _rust_notify().RustNotify(  # type: ignore[no-any-return]
        [str(folder) for folder in folders if is_folder(folder)],
        False,
        False,
        300,
        False,
        True,
    )


def _rust_notify() -> ModuleType:
    """Import the one module of watchfiles that is used here, without the package.

    The package imports anyio and multiprocessing: 20 modules and 1.5 MB of every daemon.
    """
    name = "watchfiles._rust_notify"
    found = sys.modules.get(name)
    if found is not None:
        return found
    package = importlib.util.find_spec("watchfiles")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec(name, folders)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return sys.modules.setdefault(name, module)
