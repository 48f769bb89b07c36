"""The command that starts the daemon, and the environment that it gets.

No `PYTHON*` variable of the starting process reaches the daemon, except `KEPT`. Otherwise a
`secrets.py` of one project, on a `PYTHONPATH` that direnv sets there, would crash the daemon of
every editor. This module imports as little as possible, because until the variable is removed,
imports may load files of such a path.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

KEPT = "PYTHON_KEYRING_BACKEND"
"""The one `PYTHON*` variable that is kept: the keyring library reads it, not the interpreter."""


def daemon_arguments(arguments: "Sequence[str]" = ()) -> list[str]:
    """Return the command line that runs the daemon in the foreground, with `arguments` added."""
    # -P, so that a folder `capd` in the working directory is not imported as the daemon.
    return [sys.executable, "-P", "-m", "capd", "daemon", "run", *arguments]


def daemon_environment(env: "Mapping[str, str]") -> dict[str, str]:
    """Return `env` as changed for one of capd's own Python programs, such as the daemon."""
    return {key: value for key, value in env.items() if not key.startswith("PYTHON") or key == KEPT}
