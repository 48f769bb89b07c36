"""The command that starts the daemon, and the environment that it gets.

No `PYTHON*` variable of the starting process reaches the daemon, except `KEPT`. Otherwise a
`secrets.py` of one project, on a `PYTHONPATH` that direnv sets there, would crash the daemon of
every editor. This module imports as little as possible, because an import may load a file of such a
path until `PYTHONPATH` is removed.
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
    """Return `env` without `PYTHON*` variables except `KEPT`, for capd's own Python programs."""
    return {key: value for key, value in env.items() if not key.startswith("PYTHON") or key == KEPT}
