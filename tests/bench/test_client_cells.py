"""Running one column of the client table leaves the other cells unchanged."""

import importlib
import sys

import pytest

OLD = "| Claude Code | 2, card | 3, own tools alone | 2, listed |"


@pytest.mark.parametrize(
    ("new", "row"),
    [
        ("| Claude Code | - | 2, card | - |", "| Claude Code | 2, card | 2, card | 2, listed |"),
        ("| Claude Code | 3 | - | - |", "| Claude Code | 3 | 3, own tools alone | 2, listed |"),
        ("| Claude Code | - | - | 4 |", "| Claude Code | 2, card | 3, own tools alone | 4 |"),
    ],
)
def test_a_cell_that_was_not_taken_stays_as_it_was(
    new: str, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module puts the tests' folder in place of its own.
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    clients = importlib.import_module("bench.clients")

    got = clients.with_new_cells(OLD, new)

    assert got == row
