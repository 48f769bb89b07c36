"""Builds the one file that a bridge copies to the far side (the other host or the container).

The file contains the shim, the program that keeps the bridge open there and removes its files at
the end (`far_side`), and the program that runs servers there (`runner`).
"""

import io
import zipfile
from importlib.resources import files

_MAIN = """\
import sys

folder = sys.argv[0].rpartition("/")[0] or "."
if sys.argv[1:2] in (["hold"], ["hold-streams"]):
    from pathlib import Path

    from capd_client.bridge import far_side

    held = far_side.hold if sys.argv[1] == "hold" else far_side.hold_streams
    held(Path(folder).absolute(), sys.argv[2])
    sys.exit(0)

if sys.argv[1:2] == ["run"]:
    from pathlib import Path

    from capd_client.bridge import runner

    runner.run(Path(folder).absolute())
    sys.exit(0)

from capd_client.shim.bridged import main

sys.exit(main(folder))
"""
_EPOCH = (1980, 1, 1, 0, 0, 0)


def far_side_program() -> bytes:
    """Return the source of `far_side`, the program that installs the shim on the far side."""
    source = files("capd_client.bridge").joinpath("far_side.py").read_bytes()
    return source + b"\n\nsys.exit(obey())\n"


def bundle() -> bytes:
    """Return the shim, `far_side` and `runner` as one zip file that Python can run.

    The same version of capd always gives the same bytes.
    """
    data = io.BytesIO(b"#!/usr/bin/env python3\n")
    data.seek(0, io.SEEK_END)
    package = files("capd_client")
    members = {
        "__main__.py": _MAIN.encode(),
        "capd_client/__init__.py": package.joinpath("__init__.py").read_bytes(),
        "capd_client/bridge/__init__.py": b"",
    }
    for name in ("far_side.py", "runner.py", "streams.py"):
        members[f"capd_client/bridge/{name}"] = package.joinpath("bridge", name).read_bytes()
    for each in package.joinpath("shim").iterdir():
        if each.name.endswith(".py"):
            members[f"capd_client/shim/{each.name}"] = each.read_bytes()
    # The members are not compressed, so that a Python without zlib can read them.
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), members[name])
    return data.getvalue()
