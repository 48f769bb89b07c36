"""Reads labelled messages, and the catalogs that they are about, from files.

A file has one JSON object a line. A row is {text, label or null, accept?, kind?, writer?, before?,
either?, split?, set?, src_trigger?}. `label` names the right capability, `accept` others that are
right too, and `src_trigger` the trigger that the text was derived from. The measures are also given
for each `kind`. Rows are selected by `split` and `set`. An entry of a catalog is {name, triggers?,
description?, descriptions?, set?}.

`Part` selects a half of the development data: messages whose sha256 ends in an even hex digit are
for tuning, the others for the development test.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from capd.adapters.overlay_files import read_overlay_folder
from capd.adapters.tap_files import TapPlace, read_tap
from capd.core.errors import CapdError
from capd.core.routing import gates
from capd.core.taps.catalog import Catalog
from capd.core.taps.overlays import overlaid
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, TapName

Part = Literal["all", "tune", "test"]
PARTS: tuple[Part, ...] = ("all", "tune", "test")
TRIGGER_SPLIT = "trigger"

_T = TypeVar("_T")


class BadDataError(CapdError):
    """A file of labelled messages or of a catalog is invalid; the text says where and why."""


class Row(msgspec.Struct, frozen=True):
    """One message and its right answers."""

    text: str
    label: str | None = None
    accept: tuple[str, ...] = ()
    kind: str = ""
    split: str = ""
    set: str = ""
    src_trigger: str | None = None
    writer: str = ""
    """Who wrote the message. In cross-validation, all messages of a writer are in the same fold."""
    before: str = ""
    """The previous message in the same conversation."""
    either: tuple[str, ...] = ()
    """Capabilities between which the message cannot decide; all of them should be suggested."""

    @property
    def right(self) -> frozenset[str]:
        """Every capability that is a right answer; empty if no capability is wanted."""
        return frozenset() if self.label is None else frozenset({self.label, *self.accept})


class _CatalogueLine(msgspec.Struct):
    name: str
    triggers: tuple[str, ...] = ()
    description: str = ""
    descriptions: tuple[str, ...] = ()
    set: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """Says which rows of a file of labelled messages are used."""

    split: str = ""
    set: str = ""
    part: Part = "all"

    def rows(self, files: Iterable[Path]) -> list[Row]:
        """Return the selected rows of `files`.

        Raises:
            BadDataError: a file cannot be read, or a line is no row.
        """
        return [row for file in files for row in _lines(file, Row) if self._has(row)]

    def _has(self, row: Row) -> bool:
        return (
            (not self.split or row.split == self.split)
            and (not self.set or row.set == self.set)
            and (self.part == "all" or part_of(row.text) == self.part)
        )


def part_of(text: str) -> Part:
    """Return the half of the development data that a text belongs to: `tune` or `test`.

    It depends on the last hex digit of the text's sha256.
    """
    last = hashlib.sha256(text.encode()).hexdigest()[-1]
    return "tune" if int(last, 16) % 2 == 0 else "test"


def catalogue(
    file: Path | None, triggers_from: Sequence[Path] = (), only_set: str = ""
) -> tuple[CapabilitySpec, ...]:
    """Return the capabilities of the catalog `file`, with triggers from the rows of other files.

    A row of `triggers_from` whose split is `trigger` adds its text to the triggers of the
    capability that is its label, whether `file` has this capability or not. `only_set` selects one
    set of `file`; empty selects all.

    Raises:
        BadDataError: a file cannot be read, or a line is invalid.
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


def tap(*folders: Path, overlays: Sequence[Path] = ()) -> tuple[CapabilitySpec, ...]:
    """Return the capabilities to which a message can be routed, of the taps in `folders`.

    They have the texts that `overlays` add, as in the daemon. Capabilities that no session can
    switch on (builtins) are left out.

    Raises:
        BadDataError: an overlay is for none of the taps.
        TapUnreadableError: a tap cannot be read.
    """
    read = [read_tap(TapPlace(TapName(each.resolve().name), each)) for each in folders]
    said = [read_overlay_folder(overlay) for overlay in overlays]
    for overlay in said:
        if not any(overlay.is_for(each) for each in read):
            why = "; ".join(finding.reason for finding in overlay.findings)
            named = " and ".join(f"the tap {each.name} in {each.path}" for each in read)
            raise BadDataError(f"{overlay.path}: {why or f'it says nothing of {named}'}")
    catalog = Catalog(overlaid(read, said).taps)
    return gates.eligible(catalog.winners, "", catalog.wanted_keys).capabilities


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
