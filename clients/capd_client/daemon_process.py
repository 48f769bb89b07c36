"""How the daemon's process is started: the command, and the environment it gets.

No `PYTHON*` variable of whoever starts it reaches the daemon: a `secrets.py` of one project, on a
`PYTHONPATH` that direnv has set there, would end it for every editor. Only builtins are imported,
so that nothing on such a path is read before it is left out.
"""

import sys
from collections.abc import Mapping, Sequence

ALLOCATOR = ("PYTHONMALLOC", "malloc")
"""Python's own allocator gives memory back in whole megabytes only: 1,500 sessions that were gone
left 54 MB, and 24 with the C library's. Both take the same time."""


KEPT = "PYTHON_KEYRING_BACKEND"
"""What the keyring library calls its setting; the interpreter has no use for it."""


def daemon_arguments(arguments: Sequence[str] = ()) -> list[str]:
    """Return the command that runs the daemon in the foreground."""
    # -P: a folder `capd` in the working directory is not the daemon.
    return [sys.executable, "-P", "-m", "capd", "daemon", "run", *arguments]


def daemon_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Python program of capd's own, the daemon above all."""
    kept = {key: value for key, value in env.items() if not key.startswith("PYTHON") or key == KEPT}
    return {**kept, ALLOCATOR[0]: ALLOCATOR[1]}
