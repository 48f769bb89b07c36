"""Reads the branch and the remotes of a project's git checkout, from its files alone.

PROJECT/.git/HEAD, PROJECT/.git/config            a checkout
PROJECT/.git is a file: `gitdir: FOLDER`          a worktree: FOLDER/HEAD, FOLDER/commondir
"""

import os
from contextlib import suppress
from pathlib import Path

from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.sessions.git_checkout import NO_CHECKOUT, GitCheckout, branch_of, remotes_of

MOST_FOLDERS = 64
"""The most folders that are searched for `.git`: the project, and those above it."""
MOST_HEAD_BYTES = 4 << 10
MOST_CONFIG_BYTES = 256 << 10
_GITDIR = "gitdir:"


def read_checkout(project: str) -> GitCheckout:
    """Return the branch and the remotes of the checkout around `project`. Blocks.

    Return `NO_CHECKOUT` if there is none.
    """
    folder = Path(project)
    for around in (folder, *folder.parents)[:MOST_FOLDERS]:
        place = around / ".git"
        # The folder may not be readable, or its name may be too long for any folder.
        with suppress(OSError):
            if place.is_dir():
                return _read(place, place)
            if place.is_file():
                return _read_worktree(place)
    return NO_CHECKOUT


def _read_worktree(pointer: Path) -> GitCheckout:
    said = _text(pointer, MOST_HEAD_BYTES).strip()
    if not said.startswith(_GITDIR):
        return NO_CHECKOUT
    own = pointer.parent / said.removeprefix(_GITDIR).strip()
    common = _text(own / "commondir", MOST_HEAD_BYTES).strip()
    return _read(own, own / common if common else own)


def _read(own: Path, common: Path) -> GitCheckout:
    branch = branch_of(_text(own / "HEAD", MOST_HEAD_BYTES))
    return GitCheckout(branch, remotes_of(_text(common / "config", MOST_CONFIG_BYTES)))


def _text(path: Path, most_bytes: int) -> str:
    """Return the text of the file at `path`.

    It is empty if there is no file, or one that cannot be read or has over `most_bytes` bytes.
    """
    with suppress(OSError, ValueError), opened_regular(path, os.O_CLOEXEC) as (descriptor, _):
        return read_up_to(descriptor, most_bytes).decode(errors="replace")
    return ""
