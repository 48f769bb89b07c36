"""Checks the space and the permissions of the folders where capd stores its state."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from capd_client.doctor.environment import CheckContext
from capd_client.doctor.findings import Finding

LITTLE_BYTES = 500_000_000
"""Less free space is reported as a warning. This limit and the next are estimates."""
TOO_LITTLE_BYTES = 50_000_000
"""Less free space is reported as an error."""


def check_storage(seen: CheckContext) -> Iterator[Finding]:
    """Check that capd's folders can be written, and the free space for state and cache."""
    for what, path, loss in (
        ("configuration", seen.places.config, "nothing can be added or installed"),
        ("data", seen.places.data, "no tap can be cloned, and no client be given a launcher"),
    ):
        folder = _existing(Path(path))
        if not os.access(folder, os.W_OK | os.X_OK):
            yield _locked(what, folder, loss)
    for what, path in (("state", seen.places.state), ("cache", seen.places.cache)):
        folder = _existing(Path(path))
        if not os.access(folder, os.W_OK | os.X_OK):
            yield _locked(what, folder, "sessions and records would be lost with each restart")
            continue
        free = shutil.disk_usage(folder).free
        if free >= LITTLE_BYTES:
            yield Finding("storage", "ok", f"{what}: {free / 1e9:.1f} GB free at {folder}")
            continue
        yield Finding(
            "storage",
            "error" if free < TOO_LITTLE_BYTES else "warning",
            f"{free // 1_000_000} MB are left for the {what} folder, {folder}",
            "records, vectors and large results are dropped when there is no room",
            "make room on that disk",
        )


def _locked(what: str, folder: Path, loss: str) -> Finding:
    return Finding(
        "storage",
        "error",
        f"the {what} folder cannot be written: {folder}",
        loss,
        f"chown it to yourself, or chmod u+rwx {folder}",
    )


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing folder above it."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder
