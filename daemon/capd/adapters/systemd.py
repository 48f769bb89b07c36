"""Notifies systemd of the daemon's state, if systemd asks for it (`Type=notify`)."""

import contextlib
import os
import socket
from collections.abc import MutableMapping


class Notifier:
    """Writes to the socket that NOTIFY_SOCKET names; does nothing if the variable is not set.

    The variable is removed, so that child processes do not get it.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        # One socket for all messages: when descriptors run out, none could be opened for the
        # watchdog, and systemd would end a daemon that works.
        self._socket = _opened() if address else None
        interval = environment.pop("WATCHDOG_USEC", "")
        is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.watchdog = int(interval) / 1e6 if is_ours and interval.isdecimal() else 0.0
        """Seconds without a message after which systemd ends the daemon; 0 if it does not watch."""

    def ready(self, status: str) -> None:
        """Report that the daemon accepts connections; `status` is shown by `systemctl status`."""
        self._send(f"READY=1\nMAINPID={os.getpid()}\nSTATUS={status}")

    def alive(self) -> None:
        """Report to the watchdog that the daemon is alive."""
        self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the daemon is stopping on purpose."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Report nothing more."""
        if self._socket is not None:
            self._socket.close()

    def _send(self, text: str) -> None:
        if self._socket is not None:
            # systemd's socket may be gone, or this one closed; the daemon works without it.
            with contextlib.suppress(OSError):
                self._socket.sendto(text.encode(), self._address)


def _opened() -> socket.socket | None:
    with contextlib.suppress(OSError):
        return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    return None
