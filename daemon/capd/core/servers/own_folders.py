"""Decides which of capd's own folders are hidden from a server at the sandbox level `guard`.

A server may need a part of them: a tap's scripts are below `data/taps`, a shared server runs in
`state/shared`, and a user may have a script beside the configuration. Such a part stays visible if
the server's program or working directory is in it, or if a word of its definition names it.

    config   hidden; if the server needs an entry that is not capd's, all entries that are not
             capd's are kept; `own` is kept for a server of the user's own tap that needs it
    state    hidden; `shared`, or a folder in `empty`, is kept if the server needs it
    data     hidden; `bin` (the launcher) is kept, read-only; `taps/NAME` is kept if the server
             needs it, read-only unless this tap defines the server; `packages/DIGEST` is kept,
             read-only, if the server needs it
    cache, run   hidden; the socket is kept for a server that may connect

If the server's program or working directory is in one of these folders, and the rules keep no part
of that folder, then the whole folder stays visible.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from capd.core.lazy_patterns import lazy_pattern

OWN_ENTRIES = ("config.toml", "clients.toml", "taps.toml", "secrets.env", "overlays", "own", ".")
"""An entry of `config` whose name begins with one of these is capd's own. This includes capd's
temporary files."""
_OWN_TAP = "own"
_LAUNCHERS = "bin"
_TAPS = "taps"
PACKAGES = "packages"
"""The folder in `data` with downloaded packages, each in a folder named by its digest."""
_SHARED = "shared"
_EMPTY = "empty"
_DIGEST = lazy_pattern(r"[0-9a-f]{64}")
_ENDS_OF_A_PATH = " \t\n\"':;,="

Kind = Literal["config", "state", "cache", "data", "run"]
Access = Literal["write", "read"]


@dataclass(frozen=True, slots=True)
class OwnFolders:
    """capd's own folders, as paths without symlinks.

    The path of a folder that capd shares with other programs is empty.
    """

    config: str = ""
    state: str = ""
    cache: str = ""
    data: str = ""
    run: str = ""
    socket: str = ""

    def by_kind(self) -> dict[Kind, str]:
        """Return capd's folders by kind, such as `config`.

        Those that are not set, or are inside another one, are left out.
        """
        kinds: dict[Kind, str] = {
            "config": self.config,
            "state": self.state,
            "cache": self.cache,
            "data": self.data,
            "run": self.run,
        }
        return {
            kind: folder
            for kind, folder in kinds.items()
            if folder
            and not any(other and folder.startswith(other + "/") for other in kinds.values())
        }


@dataclass(frozen=True, slots=True)
class FolderNeeds:
    """The facts of a server that decide which parts of capd's folders it needs."""

    command: str
    cwd: str
    words: Sequence[str] = ()
    """Its arguments and the values of its environment."""
    tap: str = ""
    """The name of the tap that defines the server."""
    config_entries: Sequence[str] = ()
    """The names of all entries in the folder `config`."""
    has_launcher: bool = False
    """Whether `data` has the folder `bin`, which stays readable."""
    may_connect: bool = False
    """Whether the server may connect to the daemon's socket."""


@dataclass(frozen=True, slots=True)
class FolderCover:
    """The folders that are hidden from a server, and the parts of them that stay visible."""

    hidden: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    """Parts of hidden folders that stay visible and can be written."""
    read_only: tuple[str, ...] = ()
    """Parts of hidden folders that stay visible, only to read."""
    left: tuple[str, ...] = ()
    """Folders that stay visible because the server's program or working directory is there."""


def cover(own: OwnFolders, needs: FolderNeeds) -> FolderCover:
    """Return which of capd's folders to hide from a server, and which parts to leave visible."""
    hidden = own.by_kind()
    left: list[str] = []
    kept: dict[str, Access] = {}
    for kind, folder in own.by_kind().items():
        for path, is_vital in _paths_in(folder, needs):
            found = _kept(kind, path[len(folder) + 1 :], needs)
            kept |= {f"{folder}/{each}": access for each, access in found.items()}
            if is_vital and not found and kind in hidden:
                left.append(hidden.pop(kind))
    if needs.has_launcher and "data" in hidden:
        kept[f"{own.data}/{_LAUNCHERS}"] = "read"
    if needs.may_connect and own.socket:
        kept[own.socket] = "write"
    # Entries of a folder that is not hidden need no exception.
    inside = [
        each for each in kept if any(each.startswith(folder + "/") for folder in hidden.values())
    ]
    return FolderCover(
        tuple(hidden.values()),
        tuple(each for each in inside if kept[each] == "write"),
        tuple(each for each in inside if kept[each] == "read"),
        tuple(left),
    )


def _paths_in(folder: str, needs: FolderNeeds) -> Iterator[tuple[str, bool]]:
    """Yield the paths in `folder` that the server needs, and whether it needs each to start."""
    for path in (needs.command, needs.cwd):
        if path == folder or path.startswith(folder + "/"):
            yield path, True
    for word in needs.words:
        start = word.find(folder + "/")
        if start >= 0:
            yield _until_its_end(word[start:], len(folder)), False


def _until_its_end(text: str, at_least: int) -> str:
    end = min(
        (found for mark in _ENDS_OF_A_PATH if (found := text.find(mark, at_least)) >= 0),
        default=len(text),
    )
    return text[:end]


def _kept(kind: Kind, below: str, needs: FolderNeeds) -> dict[str, Access]:
    """Return the entries of a folder that stay visible, because the server needs one of them.

    `below` is the path that it needs, relative to the folder of this `kind`.
    """
    first, _, rest = below.partition("/")
    if kind == "state":
        if first == _EMPTY and rest:
            return {f"{_EMPTY}/{rest.partition('/')[0]}": "write"}
        return {_SHARED: "write"} if first == _SHARED else {}
    if kind == "data" and first == _TAPS:
        name = rest.partition("/")[0]
        if name in {"", ".", ".."}:
            return {}
        return {f"{_TAPS}/{name}": "write" if name == needs.tap else "read"}
    if kind == "data" and first == PACKAGES:
        digest = rest.partition("/")[0]
        return {f"{PACKAGES}/{digest}": "read"} if _DIGEST.fullmatch(digest) else {}
    if kind == "data" and first == _LAUNCHERS:
        return {_LAUNCHERS: "read"}
    if kind == "config" and first:
        if first == _OWN_TAP and needs.tap == _OWN_TAP:
            return {_OWN_TAP: "write"}
        if first in needs.config_entries and not first.startswith(OWN_ENTRIES):
            # A script may need the files beside it.
            theirs = (each for each in needs.config_entries if not each.startswith(OWN_ENTRIES))
            return dict.fromkeys(theirs, "write")
    return {}
