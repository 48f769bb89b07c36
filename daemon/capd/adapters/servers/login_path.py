"""The user's PATH and network variables from the login shell, if no shell started the daemon.

An editor from a desktop menu, or systemd, passes a PATH without nvm, Homebrew or ~/.local/bin, and
then `npx` is not found. An agent may have removed SSL_CERT_FILE, and then nothing can be
downloaded. So capd asks the user's own shell once. It appends the folders that only the shell's
PATH has, so every program that was found before is still found in the same place. The variables for
networks and package registries get the shell's values.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import trio

from capd.adapters.servers.child_environment import NETWORK
from capd.adapters.servers.processes import (
    CommandNotFoundError,
    ProcessSpec,
    SpawnFailedError,
    TreeSurvivedError,
    running,
)

TIMEOUT = 5.0
"""Seconds for the shell's start-up files. A shell that takes longer is ended."""
_MARK = "capd-environment:"
_LONGEST_BYTES = 1 << 20


def is_from_shell(environment: Mapping[str, str]) -> bool:
    """Tell whether a shell started the daemon; then its PATH is the user's already."""
    return "SHLVL" in environment


def merged(path: str, login: str) -> str:
    """Return the search path `path`, followed by the folders that only the path `login` has."""
    folders = [folder for folder in (*path.split(os.pathsep), *login.split(os.pathsep)) if folder]
    return os.pathsep.join(dict.fromkeys(folders))


async def login_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return PATH and the network variables as the login shell sets them; none if it fails."""
    shell = environment.get("SHELL") or "/bin/sh"
    # Interactive as well: nvm and similar tools are set up in files that only such a shell reads.
    argv = (shell, "-l", "-i", "-c", f"echo {_MARK}; env")
    # Without the daemon's network variables, the shell prints only the values that it sets itself.
    given = {name: value for name, value in environment.items() if name not in NETWORK}
    said = bytearray()
    home = Path(environment.get("HOME") or "/")
    try:
        with trio.move_on_after(TIMEOUT):
            async with running(ProcessSpec(argv, given, home)) as process:
                process.stdin.close()
                while len(said) < _LONGEST_BYTES:
                    chunk = await process.stdout.receive_some(65536)
                    if not chunk:
                        break
                    said += chunk
    except (CommandNotFoundError, SpawnFailedError, TreeSurvivedError):
        return {}
    _, marked, printed = said.decode(errors="replace").rpartition(f"{_MARK}\n")
    lines = (line.partition("=") for line in printed.splitlines()) if marked else ()
    return {name: value for name, _, value in lines if name in NETWORK or name == "PATH"}
