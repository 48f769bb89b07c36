"""The PATH of the user's login shell, for a daemon that no shell started.

An editor from a desktop menu, or systemd, passes a PATH without nvm, Homebrew or ~/.local/bin, and
then `npx` is not found. The user's own shell is asked once; what only it knows is appended, so
nothing that was found before is found elsewhere now.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import trio

from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ProcessSpec,
    SpawnFailedError,
    TreeSurvivedError,
    running,
)

TIMEOUT = 5.0
"""Seconds for the shell's start-up files; a shell that hangs in them is ended."""
_MARK = "capd-path:"
_LONGEST_BYTES = 1 << 20


def is_from_shell(environment: Mapping[str, str]) -> bool:
    """Tell whether a shell started the daemon, so that its PATH is the user's already."""
    return "SHLVL" in environment


def merged(path: str, login: str) -> str:
    """Return `path` with what only `login` has behind it."""
    folders = [folder for folder in (*path.split(os.pathsep), *login.split(os.pathsep)) if folder]
    return os.pathsep.join(dict.fromkeys(folders))


async def login_path(environment: Mapping[str, str]) -> str:
    """Return the PATH that the user's login shell sets; empty where it does not say."""
    shell = environment.get("SHELL") or "/bin/sh"
    # Interactive as well: nvm and its like stand in the files that only such a shell reads.
    argv = (shell, "-l", "-i", "-c", f'printf "\\n{_MARK}%s\\n" "$PATH"')
    said = bytearray()
    home = Path(environment.get("HOME") or "/")
    try:
        with trio.move_on_after(TIMEOUT):
            async with running(ProcessSpec(argv, dict(environment), home)) as process:
                process.stdin.close()
                while len(said) < _LONGEST_BYTES:
                    chunk = await process.stdout.receive_some(65536)
                    if not chunk:
                        break
                    said += chunk
    except (CommandNotFoundError, SpawnFailedError, TreeSurvivedError):
        return ""
    for line in reversed(said.decode(errors="replace").splitlines()):
        if line.startswith(_MARK):
            return line.removeprefix(_MARK)
    return ""
