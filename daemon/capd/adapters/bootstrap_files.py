"""A project's bootstrap files as they are on disk: regular files within it, and no others."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from capd.adapters.regular_files import opened_regular, read_up_to
from capd.core.memories.bootstrap import Bootstrap, BootstrapFile

LARGEST_BYTES = 2 << 20
MOST_FILES = 64


def read_bootstrap(project: str, wanted: Iterable[str]) -> Bootstrap:
    """Return which of `wanted` a project has; what cannot be read is left out with its reason."""
    root = Path(os.path.realpath(project))
    files: list[BootstrapFile] = []
    left_out: dict[str, str] = {}
    for name in list(wanted)[:MOST_FILES]:
        try:
            text = _text(root, name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            left_out[name] = error.strerror or str(error)
        except (UnicodeDecodeError, ValueError):
            left_out[name] = "it is not UTF-8"
        else:
            if text.strip():
                files.append(BootstrapFile(name, text))
    return Bootstrap(tuple(files), left_out)


def _text(root: Path, name: str) -> str:
    real = Path(os.path.realpath(root / name))
    if not real.is_relative_to(root) or real == root:
        raise OSError(errno.EPERM, "it is outside of the project")
    with opened_regular(real, os.O_NOFOLLOW) as (descriptor, _):
        _check_still_inside(root, descriptor)
        return read_up_to(descriptor, LARGEST_BYTES).decode()


def _check_still_inside(root: Path, descriptor: int) -> None:
    """Raise where a folder above was replaced between the look and the opening."""
    link = Path(f"/proc/self/fd/{descriptor}")
    if link.is_symlink() and not link.readlink().is_relative_to(root):
        raise OSError(errno.EPERM, "it is outside of the project")
