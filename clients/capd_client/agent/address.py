"""Finds the daemon's socket, checks whose daemon it is, and starts one if none is running.

connect -> wait, longer each time -> connect ... until a daemon answers, or `patience` ends
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from capd_client.agent.errors import NoDaemonError, RefusedError
from capd_client.control import peer_uid
from capd_client.daemon_process import daemon_environment
from capd_client.shim.replay import NOT_SENT, REFUSED
from capd_protos.places import socket_path

FIRST_PAUSE = 0.02
LAST_PAUSE = 1.0
CONNECT_TIMEOUT = 5.0
GREETING_TIMEOUT = 10.0
START_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class Address:
    """The path of a daemon's socket, and whether a daemon may be started there.

    `env` is the environment of a daemon that is started.
    """

    path: str
    may_start: bool
    env: Mapping[str, str]

    def check(self, connection: socket.socket) -> None:
        """Check that the daemon runs as this user: it will receive the user's messages.

        Raises:
            RefusedError: the socket belongs to another user's daemon.
        """
        uid = peer_uid(connection)
        if uid != os.getuid():
            text = f"the daemon at {self.path} runs as user {uid}, not as you: remove that socket"
            raise RefusedError(text, REFUSED)

    def start(self) -> str:
        """Start a daemon and wait until it answers; return the reason if it does not, else "".

        A separate process starts the daemon and then ends, so that the program has no new child
        process.
        """
        command = [sys.executable, "-P", "-m", "capd_client.entry", "daemon", "start"]
        try:
            done = subprocess.run(
                command,
                env=daemon_environment(self.env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd="/",
                timeout=START_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        errors = done.stderr.decode(errors="replace").strip()
        return (errors or f"`capd daemon start` failed with {done.returncode}") * bool(
            done.returncode
        )

    def none(self, why: str) -> NoDaemonError:
        """Return the error that says that no daemon answers; `why` is the reason, or empty."""
        reason = f" ({why})" if why else ""
        hint = "start it with: capd daemon start"
        return NoDaemonError(f"no daemon at {self.path}{reason}; {hint}", NOT_SENT)


def address(path: str, env: Mapping[str, str], *, may_start: bool) -> Address:
    """Return the address of the daemon: `path`, or the path in `env` if `path` is empty.

    A daemon may be started only if `path` is empty, `may_start` is true, and CAPD_NO_START is not
    set.
    """
    is_allowed = may_start and not path and env.get("CAPD_NO_START", "") in {"", "0"}
    return Address(path or socket_path(env, os.getuid()), is_allowed, env)
