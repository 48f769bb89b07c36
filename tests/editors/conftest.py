"""Fixtures: a daemon, a scripted model, and a home folder for each test."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from capd_client.control import ControlError, DaemonDownError
from whole_daemon import Home

from .lab import CLAUDE, OPENCODE, Lab, Model, installed

Start = Callable[[list[dict[str, Any]]], Lab]


@pytest.fixture(scope="session")
def claude() -> Path:
    """The program of Claude Code."""
    return installed(CLAUDE, script="install.cjs") / "bin" / "claude.exe"


@pytest.fixture(scope="session")
def opencode() -> Path:
    """The program of opencode."""
    found = sorted(installed(OPENCODE).parent.glob("opencode-*/bin/opencode"))
    if not found:
        pytest.skip("npm has no opencode for this machine")
    # Those without a suffix need a newer processor than the baseline does.
    return next((path for path in found if "baseline" in str(path)), found[0])


@pytest.fixture
def start_lab(shared_fixtures: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a lab whose model follows a script."""
    with _labs(shared_fixtures, tmp_path) as start:
        yield start


@pytest.fixture
def start_bare_lab(shared_fixtures: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a lab whose daemon has only the test's own tap, and does not route."""
    with _labs(shared_fixtures, tmp_path, is_shipped=False) as start:
        yield start


@contextlib.contextmanager
def _labs(shared_fixtures: Path, tmp_path: Path, *, is_shipped: bool = True) -> Iterator[Start]:
    program = shared_fixtures / "fixtures" / "fake_llm.py"
    if not program.exists():
        pytest.skip(f"{program} is not there")
    # Short: a socket's path has at most 108 bytes.
    folder = Path(tempfile.mkdtemp(prefix="capd"))
    folder.chmod(0o700)
    home = Home(folder, is_shipped=is_shipped)
    if not is_shipped:
        home.leave_out_model()
    models: list[Model] = []

    def start(script: list[dict[str, Any]]) -> Lab:
        models.append(Model(program, tmp_path / "model", script))
        return Lab(home, models[-1], tmp_path)

    try:
        yield start
        # One that a client's shim has started.
        with contextlib.suppress(DaemonDownError, ControlError):
            home.ask("stop")
        home.close()
    finally:
        # Shown where the test failed.
        for log in (folder / "daemon.log", folder / "state" / "capd.log"):
            print(log.read_text()[-5000:] if log.exists() else "")
        for model in models:
            model.close()
        for process in home.processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
