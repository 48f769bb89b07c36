"""The peers' programs, each in an environment of its own under the cache folder.

An environment is named after the package and its version, so another version is another folder
and an interrupted installation is made anew.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

_TIMEOUT = 600.0


class NotInstalledError(Exception):
    """A peer cannot be installed on this machine; the text says why."""


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "capd-bench"


def from_pypi(package: str, version: str) -> Path:
    """Return the folder of the commands of a package from PyPI."""
    folder = cache_folder() / f"pypi-{package}-{version}"
    wanted = f"{package}=={version}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        python = str(folder / "bin" / "python")
        uv = Path(sys.executable).with_name("uv")
        # uv is faster, but does not read pip's settings (an index, a proxy); then pip does it.
        try:
            _run([str(uv), "pip", "install", "--quiet", "--python", python, wanted])
        except NotInstalledError:
            _run([python, "-m", "pip", "install", "--quiet", wanted])
        (folder / "complete").touch()
    return folder / "bin"


def from_npm(package: str, version: str) -> Path:
    """Return the folder of the commands of a package from npm."""
    folder = cache_folder() / f"npm-{package.replace('/', '-')}-{version}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        quiet = ["--no-audit", "--no-fund", "--loglevel=error"]
        _run(["npm", "install", "--prefix", str(folder), *quiet, f"{package}@{version}"])
        (folder / "complete").touch()
    return folder / "node_modules" / ".bin"


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_TIMEOUT, check=False, errors="replace"
        )
    except FileNotFoundError:
        raise NotInstalledError(f"{argv[0]} was not found in PATH") from None
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"{argv[0]} did not end within {_TIMEOUT:g} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        last = lines[-1].strip()[:200] if lines else "without a word"
        raise NotInstalledError(f"{Path(argv[0]).name} failed: {last}")
