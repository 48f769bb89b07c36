"""Taps that are git repositories: cloned once, updated only when a person asks.

git is run without a shell, and shows its own progress. A clone has a temporary name until git has
finished and the folder proves to be a tap.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from capd_client.taps import TapError, is_tap
from capd_protos.places import make_folders

_URL = re.compile(r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+")
# A clone must run no code of the repository: no hooks, and no `ext::` URL, which runs a command.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never")


def is_url(text: str) -> bool:
    """Tell whether `text` is the URL of a repository, and not a local folder."""
    return _URL.fullmatch(text) is not None


def name_of(url: str) -> str:
    """Return the name of the folder for a clone: the last part of `url`, without `.git`."""
    return re.split(r"[/:]", url.rstrip("/"))[-1].removesuffix(".git")


def clone(url: str, folder: Path) -> None:
    """Clone the tap at `url` into `folder`.

    Raises:
        TapError: git failed, or the repository is not a tap; `folder` is unchanged.
    """
    if folder.exists():
        raise TapError(
            f"{folder} is there already\nAdd it by its path, or choose another name with --name."
        )
    make_folders(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".clone.") as temporary:
        fresh = Path(temporary, "tap")
        progress = ["--progress"] if sys.stderr.isatty() else ["--quiet"]
        done = _git("clone", *progress, "--no-recurse-submodules", "--", url, str(fresh))
        if done.returncode:
            raise TapError(f"git could not clone {url}\ngit's own message is above.")
        if not is_tap(fresh):
            raise TapError(
                f"{url} is not a tap: it has no folder `capabilities`, nor `skills`\n"
                "Nothing of it was kept."
            )
        fresh.rename(folder)


def update(folder: Path) -> tuple[str, str] | None:
    """Fast-forward a checkout; return its short revisions before and after.

    None if `folder` is not a git checkout.

    Raises:
        TapError: git failed; the checkout is unchanged.
    """
    if not (folder / ".git").exists():
        return None
    before = _revision(folder)
    progress = ["--progress"] if sys.stderr.isatty() else ["--quiet"]
    pull = ("pull", *progress, "--ff-only", "--no-recurse-submodules")
    if _git("-C", str(folder), *pull).returncode:
        raise TapError(
            f"git could not update {folder}\ngit's own message is above; `git -C {folder} status`"
            " says whether it was changed by hand."
        )
    return before, _revision(folder)


def discard(folder: Path) -> bool:
    """Remove a clone unless it has local work; return whether it was removed."""
    # What is not a clone cannot be fetched again.
    if not (folder / ".git").exists() or _is_worked_in(folder):
        return False
    aside = folder.with_name(f".removed.{folder.name}.{os.getpid()}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def _is_worked_in(folder: Path) -> bool:
    """Tell whether a checkout may have changes or commits that its origin lacks."""
    if shutil.which("git") is None:
        return True
    for question in (
        ("status", "--porcelain", "--ignored"),
        ("log", "--oneline", "-1", "--branches", "--not", "--remotes"),
        ("stash", "list"),
    ):
        done = subprocess.run(
            [_program(), *_SAFE, "-C", str(folder), *question],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        if done.returncode or done.stdout.strip():
            return True
    return False


def _revision(folder: Path) -> str:
    done = subprocess.run(
        [_program(), "-C", str(folder), "rev-parse", "--short", "HEAD"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "nothing"


def _git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = dict(os.environ)
    if not sys.stdin.isatty():
        # Nobody can type a password here: fail instead of waiting for one.
        environment["GIT_TERMINAL_PROMPT"] = "0"
    return subprocess.run(
        [_program(), *_SAFE, *arguments],
        env=environment,
        stdin=None if sys.stdin.isatty() else subprocess.DEVNULL,
        # git prints progress and errors; standard output is for capd's own result.
        stdout=2,
        check=False,
    )


def _program() -> str:
    program = shutil.which("git")
    if program is None:
        raise TapError("git is not on the PATH\nInstall it, or add a tap by its path.")
    return program
