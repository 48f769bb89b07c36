"""The vectors that several tests compare, computed once for all workers of a run."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from capd.adapters.routing_files import read_profile
from capd.evaluation import datasets
from capd.evaluation.route import Router
from capd.evaluation.vectors import vectorizer_for

TAPS = Path(__file__).parents[2] / "taps"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file for cached vectors, which has those of the starter tap and its overlays."""
    own = tmp_path_factory.mktemp("vectors")
    base = tmp_path_factory.getbasetemp()
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    shared = (base.parent if is_worker else base) / "evaluation-vectors"
    shared.mkdir(exist_ok=True)
    made = shared / "made"
    with (shared / "lock").open("w") as lock:
        # The first worker computes them, which takes seconds of a whole core. The others wait.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            profile = read_profile()
            capabilities = datasets.tap(TAPS / "starter", overlays=[TAPS / "overlays/starter"])
            Router(capabilities, profile, vectorizer_for(profile, shared / "vectors.bin"))
            made.touch()
    # A copy for each, because two processes must not write to one file.
    for file in shared.glob("vectors.bin*"):
        shutil.copy2(file, own)
    return own / "vectors.bin"
