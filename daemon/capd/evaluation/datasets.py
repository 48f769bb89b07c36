"""Labelled messages and the catalogues that they are about, as files hold them.

Rows are {text, label or null, accept?, kind?, split?, set?, src_trigger?}, a catalogue {name,
triggers?, description?}, one JSON object a line. `Part` is the development split: rows whose
sha256 ends in an even hex digit are for tuning, the others for the development test.
"""

import hashlib
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from capd.adapters.tap_files import TapPlace, read_tap
from capd.core.errors import CapdError
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, TapName

Part = Literal["all", "tune", "test"]
PARTS: tuple[Part, ...] = ("all", "tune", "test")
TRIGGER_SPLIT = "trigger"

_T = TypeVar("_T")


class BadDataError(CapdError):
    """A file is not what it should be; the text says where and why."""


class Row(msgspec.Struct, frozen=True):
    """One message and what is right for it."""

    text: str
    label: str | None = None
    accept: tuple[str, ...] = ()
    kind: str = ""
    split: str = ""
    set: str = ""
    src_trigger: str | None = None

    @property
    def right(self) -> frozenset[str]:
        """Every capability that is a right answer; none where nothing is wanted."""
        return frozenset() if self.label is None else frozenset({self.label, *self.accept})


class _CatalogueLine(msgspec.Struct):
    name: str
    triggers: tuple[str, ...] = ()
    description: str = ""
    descriptions: tuple[str, ...] = ()
    set: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a file are meant."""

    split: str = ""
    set: str = ""
    part: Part = "all"

    def rows(self, files: Iterable[Path]) -> list[Row]:
        """Return the rows of `files` that are meant.

        Raises:
            BadDataError: a file cannot be read.
        """
        return [row for file in files for row in _lines(file, Row) if self._has(row)]

    def _has(self, row: Row) -> bool:
        return (
            (not self.split or row.split == self.split)
            and (not self.set or row.set == self.set)
            and (self.part == "all" or part_of(row.text) == self.part)
        )


def part_of(text: str) -> Part:
    """Return the side of the development split on which a text is."""
    last = hashlib.sha256(text.encode()).hexdigest()[-1]
    return "tune" if int(last, 16) % 2 == 0 else "test"


def catalogue(
    file: Path | None, triggers_from: Sequence[Path] = (), only_set: str = ""
) -> tuple[CapabilitySpec, ...]:
    """Return the capabilities of a catalogue file, and of the rows whose split is `trigger`.

    Raises:
        BadDataError: a file cannot be read.
    """
    lines: dict[str, _CatalogueLine] = {}
    for line in _lines(file, _CatalogueLine) if file else []:
        if not only_set or line.set == only_set:
            lines.setdefault(line.name, line)
    for row in Selection(split=TRIGGER_SPLIT).rows(triggers_from):
        if row.label is not None:
            line = lines.setdefault(row.label, _CatalogueLine(row.label))
            line.triggers = (*line.triggers, row.text)
    return tuple(
        CapabilitySpec(
            CapabilityId(TapName("catalogue"), CapabilityName(line.name)),
            "",
            description=line.description or " ".join(line.descriptions),
            triggers=line.triggers,
        )
        for line in lines.values()
        if line.triggers or line.description or line.descriptions
    )


def tap(folder: Path, overlays: Sequence[Path] = ()) -> tuple[CapabilitySpec, ...]:
    """Return what a tap can route to, with the phrases of overlay folders.

    Raises:
        BadDataError: an overlay cannot be read.
        TapUnreadableError: the tap cannot.
    """
    found = {c.id.name: c for c in read_tap(TapPlace(TapName(folder.name), folder)).capabilities}
    for overlay in overlays:
        for file in sorted((overlay / "capabilities").glob("*.toml")):
            known = found.get(CapabilityName(file.stem))
            if known is None:
                continue
            try:
                body = tomllib.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise BadDataError(f"{file}: {error}") from None
            own = set(known.triggers)
            extra = tuple(phrase for phrase in body.get("triggers", ()) if phrase not in own)
            found[known.id.name] = msgspec.structs.replace(
                known,
                extra_triggers=(*known.extra_triggers, *extra),
                extra_description=body.get("description", ""),
                files=(*known.files, *body.get("files", ())),
            )
    return tuple(found.values())


def _lines(file: Path, type_: type[_T]) -> list[_T]:
    decoder = msgspec.json.Decoder(type_)
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise BadDataError(f"{file}: {error.strerror}") from None
    found: list[_T] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(decoder.decode(line))
        except msgspec.MsgspecError as error:
            raise BadDataError(f"{file}:{number}: {error}") from None
    return found
