"""Lists the names in a project's root folder. Of all files it reads only `.env`, for its keys.

A folder's name ends with `/`; a key of `.env` is `.env:KEY`. Values in `.env` are skipped and never
stored.
"""

import os
import re
from itertools import islice
from pathlib import Path

import trio

from capd.adapters.regular_files import opened_inside
from capd.core.lazy_patterns import lazy_pattern

MOST_NAMES = 300
MOST_ENV_BYTES = 65_536
LONGEST_WAIT = 0.05
"""Seconds for a listing. If the network hangs, a message is routed without the listing."""

# Capital letters only, so that a line of a multi-line value does not count as a key.
_KEY = lazy_pattern(rb"^(?:export[ \t]+)?([A-Z][A-Z0-9_]{0,63})=(?!=)", re.MULTILINE)


async def project_files(root: str) -> tuple[str, ...]:
    """Return the names in the folder `root`, and the keys of its `.env`.

    There are none if `root` is empty, or if the folder does not answer in time.
    """
    if not root:
        return ()
    with trio.move_on_after(LONGEST_WAIT):
        return await trio.to_thread.run_sync(listing, Path(root), abandon_on_cancel=True)
    return ()


def listing(root: Path) -> tuple[str, ...]:
    """Return at most `MOST_NAMES` names in the folder `root`, and the keys of its `.env`."""
    try:
        names = [
            f"{path.name}/" if path.is_dir() else path.name
            for path in islice(root.iterdir(), MOST_NAMES)
        ]
    except OSError:
        return ()
    return (*sorted(names), *_env_keys(root))


def _env_keys(root: Path) -> tuple[str, ...]:
    try:
        with opened_inside(root, root / ".env") as descriptor:
            text = os.read(descriptor, MOST_ENV_BYTES)
    except OSError:
        return ()
    return tuple(dict.fromkeys(f".env:{key.decode()}" for key in _KEY.findall(text)))
