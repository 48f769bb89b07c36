"""Where the files are that the project's repositories share."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_fixtures() -> Path:
    """Return the folder that holds `fixtures/`, `spec/` and `data/`, or skip."""
    beside_the_checkout = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("CAPD_SHARED") or beside_the_checkout)
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}: set CAPD_SHARED")
    return folder
