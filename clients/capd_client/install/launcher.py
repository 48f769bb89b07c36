"""The launcher: the script in capd's data folder that clients start, at a path that never changes.

The paths of Python and of capd's package change with upgrades. Clients' configurations name only
the launcher, so they stay valid, and a user who had to trust the path trusts it once.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import capd_client
from capd_client.install.files import read, replace
from capd_protos.places import folder_variables, make_folders, places

NAME = "capd-mcp"
_MODE = 0o755


def launcher_path(env: Mapping[str, str]) -> Path:
    """Return the path of the launcher, whether it exists or not."""
    return Path(places(env, os.getuid()).data) / "bin" / NAME


def is_launcher_current(env: Mapping[str, str]) -> bool:
    """Tell whether the launcher exists, is executable, and is what this capd would write."""
    path = launcher_path(env)
    script = launcher_script(env, sys.executable).encode()
    return read(path) == script and os.access(path, os.X_OK)


def write_launcher(env: Mapping[str, str]) -> bool:
    """Write the launcher unless it is there and current; return whether it was written.

    Raises:
        OSError: its folder cannot be written.
    """
    if is_launcher_current(env):
        return False
    path = launcher_path(env)
    make_folders(path.parent)
    replace(path, launcher_script(env, sys.executable).encode(), _MODE)
    return True


def launcher_script(env: Mapping[str, str], python: str) -> str:
    """Return the launcher's text; `python` is the interpreter that it runs.

    If variables move capd's folders, the script sets them as well: many clients do not pass them
    on, and the daemon that they start would use other folders than the `capd` command.
    """
    launch = Path(capd_client.__file__).absolute().parent / "launch.py"
    lines = ["#!/bin/sh", "# Written by `capd install`, which writes it anew."]
    moved = folder_variables(env).items()
    lines.extend(f"export {name}={shlex.quote(folder)}" for name, folder in moved)
    entry = f"{shlex.quote(python)} -P -m capd_client.entry"
    lines.append(f'if [ "$1" = hook ]; then exec {entry} "$@"; fi')
    # With -I -S the shim starts in a third of the time. It needs nothing but builtins.
    lines.append(f'exec {shlex.quote(python)} -I -S {shlex.quote(str(launch))} "$@"')
    return "\n".join(lines) + "\n"
