"""Reads a project's bootstrap files, which its sessions get as one text when they begin.

Only regular files inside the project are read.
"""

from collections.abc import Iterable
from pathlib import Path

from capd.adapters.regular_files import opened_inside, read_up_to
from capd.core.memories.bootstrap import Bootstrap, BootstrapFile

LARGEST_BYTES = 2 << 20
MOST_FILES = 64


def read_bootstrap(project: str, wanted: Iterable[str]) -> Bootstrap:
    """Return the texts of the `wanted` files of `project` that exist and are not blank.

    At most `MOST_FILES` are read. The result also says why a file could not be read.
    """
    root = Path(project)
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
    with opened_inside(root, root / name, "the project") as descriptor:
        return read_up_to(descriptor, LARGEST_BYTES).decode()
