"""Where the files are that the project's repositories share."""

import os
import signal
from pathlib import Path

import pytest

LONG_TIERS = ("real", "reliability", "clients", "servers")
LONG_TIMEOUT = 3600
"""Seconds for a test that downloads, or that does something to a daemon for minutes."""


def pytest_configure() -> None:
    """Let an interrupt end what the tests start, however they were started themselves.

    A shell that runs them in the background has them ignore it, and so would every child.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of the long tiers their own time."""
    for item in items:
        if any(item.get_closest_marker(tier) for tier in LONG_TIERS):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))


@pytest.fixture(scope="session")
def shared_fixtures() -> Path:
    """Return the folder that holds `fixtures/`, `spec/` and `data/`, or skip."""
    beside_the_checkout = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("CAPD_SHARED") or beside_the_checkout)
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}: set CAPD_SHARED")
    return folder
