"""Lets a client's own command make a change where it has one, and makes it itself otherwise."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from capd_client.install.edits import Change, FileEdit, make, plan_install
from capd_client.install.ledger import Ledger


class Vendor(Protocol):
    """A client that may have a command for a change."""

    def edits(self) -> Iterable[FileEdit]:
        """Return what capd puts where."""
        ...

    def vendor_command(self, change: Change) -> list[str]:
        """Return the command for `change`; empty where there is none."""
        ...

    def run_vendor(self, command: list[str]) -> bytes | None:
        """Run the command; return the file if it came out as it must, else None."""
        ...


def make_with_vendor(ledger: Ledger, client: Vendor, change: Change) -> Path | None:
    """Make the change of an installation; return the backup's path."""
    command = client.vendor_command(change)
    if not command:
        return make(ledger, change)
    # The command writes more than was planned, so what it leaves is known afterwards.
    ledger.note(change.path, original=change.original, left=None)
    left = client.run_vendor(command)
    if left is not None:
        return ledger.note(change.path, original=change.original, left=left)
    edits = [edit for edit in client.edits() if edit.path.resolve() == change.path]
    (again,) = plan_install(ledger, edits)
    return make(ledger, dataclasses.replace(again, original=change.original))
