"""Reads overlays from disk: folders that add words or edits to another tap's capabilities.

The user's overlays come first: those of taps.toml, then those of the folder `overlays` beside it.
Those that come with capd follow. An unreadable overlay is reported, and its tap is used without it.
"""

import tomllib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec

import capd
from capd.adapters.file_texts import PathText, expanded, file_name, file_text
from capd.adapters.parsing.jobs import DIRECT, Reader, ReadOverlay
from capd.adapters.regular_files import settings_text
from capd.adapters.unchanged_files import UnchangedFiles, mark_of_folder
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import OVERLAY_FILE, Overlay
from capd_protos.types import Finding

MOST_FILES = 2000
"""The most capabilities in one overlay."""


class _OverlayEntry(msgspec.Struct):
    path: PathText


class _OverlayList(msgspec.Struct):
    overlays: list[_OverlayEntry] = []
    shipped_overlays: bool = True


def shipped_overlays() -> Path:
    """Return the folder of overlays that come with capd, in the wheel or in the checkout."""
    package = Path(capd.__file__).parent
    installed = package / "overlays"
    return installed if installed.is_dir() else package.parents[1] / "taps/overlays"


def read_overlays(
    list_file: Path,
    reader: Reader = DIRECT,
    known: UnchangedFiles[Overlay] | None = None,
    taps: Sequence[Tap] | None = None,
) -> list[Overlay]:
    """Return all overlays, in order of precedence; unchanged ones are taken from `known`.

    `list_file` is the user's list of taps. `reader` parses the user's overlays, which others may
    have written; those that come with capd are trusted. With `taps`, shipped overlays that are for
    none of these taps are left out, because parsing all hundred files would double the time of a
    daemon's start.
    """
    listed, wrong = _listed(list_file)
    overlays = [_read(each, reader, known) for each in _own_folders(list_file, listed)]
    if listed.shipped_overlays:
        shipped = _folders_in(shipped_overlays())
        if taps is not None:
            shipped = [folder for folder in shipped if _may_be_for(folder, taps)]
        overlays += [_read(folder, DIRECT, known) for folder in shipped]
    if wrong:
        overlays.insert(0, _unusable(str(list_file), f"its overlays are not used: {wrong}"))
    return overlays


def _may_be_for(folder: Path, taps: Sequence[Tap]) -> bool:
    """Tell whether the overlay in `folder` may be for one of `taps`, without reading all of it."""
    try:
        head = tomllib.loads((folder / OVERLAY_FILE).read_text(encoding="utf-8"))
        name, least = head.get("tap"), head.get("least_in_common")
        if isinstance(name, str):
            return any(tap.name == name for tap in taps)
        if "tap" in head or not isinstance(least, int):
            return True
        names = {file.stem for file in (folder / "capabilities").glob("*.toml")}
    except (OSError, ValueError):
        # Reading the overlay reports why it cannot be used.
        return True
    return any(sum(each.id.name in names for each in tap.capabilities) >= least for tap in taps)


def _read(folder: Path, reader: Reader, known: UnchangedFiles[Overlay] | None) -> Overlay:
    if known is None:
        return read_overlay_folder(folder, reader)
    try:
        head, rest = mark_of_folder(str(folder), ".toml"), 0
        rest = mark_of_folder(str(folder / "capabilities"), ".toml")
    except OSError:
        head = rest = 0
    mark = hash((head, rest)) if head and rest else 0
    found = known.get(str(folder), mark)
    if found is None:
        found = read_overlay_folder(folder, reader)
        known.put(str(folder), mark if not found.findings else 0, found)
    return found


def overlay_folders(list_file: Path) -> list[Path]:
    """Return the folders of the user's own overlays, whether they exist or not.

    `list_file` is the user's list of taps, which names some of them.
    """
    return _own_folders(list_file, _listed(list_file)[0])


def _listed(list_file: Path) -> tuple[_OverlayList, str]:
    """Return the overlays that the list of taps names, and why the list cannot be used.

    The second result is empty if the list can be used.
    """
    try:
        text = settings_text(list_file)
        return msgspec.convert(tomllib.loads(text), _OverlayList), ""
    except FileNotFoundError:
        return _OverlayList(), ""
    # ValueError, because tomllib raises it for a number of 5000 digits.
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        return _OverlayList(), str(error)


def _own_folders(list_file: Path, listed: _OverlayList) -> list[Path]:
    # A relative path in the list starts at the folder of the list.
    folders = [list_file.parent / expanded(entry.path) for entry in listed.overlays]
    return [*folders, *_folders_in(list_file.parent / "overlays")]


def _folders_in(root: Path) -> list[Path]:
    try:
        return sorted(folder for folder in root.iterdir() if folder.is_dir())
    except OSError:
        return []


def read_overlay_folder(folder: Path, reader: Reader = DIRECT) -> Overlay:
    """Return the overlay in `folder`; if it cannot be read, an empty one that says why.

    `reader` parses its files.
    """
    texts: dict[str, str] = {}
    try:
        named = islice((folder / "capabilities").glob("*.toml"), MOST_FILES)
        for file in [folder / OVERLAY_FILE, *sorted(named)]:
            # Only regular files: reading a pipe would block for ever.
            if file.is_file():
                texts[file_name(file.relative_to(folder))] = file_text(file)
    except OSError as error:
        return _unusable(str(folder), str(error))
    return reader.read(ReadOverlay(file_name(folder), texts))


def _unusable(path: str, reason: str) -> Overlay:
    return Overlay(path, None, 0, (), (Finding(path, 0, reason),))
