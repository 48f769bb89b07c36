"""What a project's root holds, by names alone: no file is read but the keys of `.env`.

A folder's name ends with `/`, a key of `.env` is `.env:KEY`. Its values are skipped where they
stand and kept nowhere.
"""

import re
from itertools import islice
from pathlib import Path

import trio

MOST_NAMES = 300
MOST_ENV_BYTES = 65_536
LONGEST_WAIT = 0.05
"""Seconds for a listing: on a network that hangs, a message is routed without it."""

# Capitals alone: a line of a value that spans several must not be taken for a key.
_KEY = re.compile(rb"^(?:export[ \t]+)?([A-Z][A-Z0-9_]{0,63})=(?!=)", re.MULTILINE)


async def project_files(root: str) -> tuple[str, ...]:
    """Return what is in `root`; nothing where there is no root, or it does not answer in time."""
    if not root:
        return ()
    with trio.move_on_after(LONGEST_WAIT):
        return await trio.to_thread.run_sync(listing, Path(root), abandon_on_cancel=True)
    return ()


def listing(root: Path) -> tuple[str, ...]:
    """Return the names in `root`, at most `MOST_NAMES`, and the keys of its `.env`."""
    try:
        names = [
            f"{path.name}/" if path.is_dir() else path.name
            for path in islice(root.iterdir(), MOST_NAMES)
        ]
    except OSError:
        return ()
    return (*sorted(names), *_env_keys(root / ".env"))


def _env_keys(file: Path) -> tuple[str, ...]:
    try:
        # Neither a folder nor a pipe, which would be waited for without end.
        if not file.is_file():
            return ()
        with file.open("rb") as opened:
            text = opened.read(MOST_ENV_BYTES)
    except OSError:
        return ()
    return tuple(dict.fromkeys(f".env:{key.decode()}" for key in _KEY.findall(text)))
