"""A process of capd's own that the daemon talks to over a socket pair.

The process has one end of the pair as its standard input, and ends by itself when the daemon's end
closes. So a daemon that is killed leaves no such process behind.
"""

import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence


class ChannelProcess:
    """One process of capd's own, from its start to its end."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `command` with `environment`, in a session of its own (setsid(2)).

        Its working directory is `/`.

        Raises:
            OSError: the command cannot be started.
        """
        self.channel, theirs = socket.socketpair()
        """The daemon's end of the pair. The owner of this object closes it."""
        with theirs:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env=dict(environment),
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                self.channel.close()
                raise
        # A thread, because the process may end at any time, and no task waits for it.
        self._waiting = threading.Thread(target=self._process.wait, daemon=True)
        self._waiting.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is still running."""
        return self._waiting.is_alive()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._process.returncode

    def wait(self, seconds: float) -> None:
        """Wait until the process has ended, for at most `seconds`. Blocks."""
        self._waiting.join(seconds)

    def kill(self) -> None:
        """Kill the process, without waiting for its end."""
        self._process.kill()
