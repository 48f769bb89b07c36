"""Notifies systemd of the daemon's state, if systemd asks for it (`Type=notify`)."""

import os
import socket
from collections.abc import MutableMapping


class Notifier:
    """Writes to the socket that NOTIFY_SOCKET names; does nothing if the variable is not set.

    The variable is removed, so that child processes do not get it.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
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

    def _send(self, text: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            try:
                sock.sendto(text.encode(), address)
            except OSError:
                # systemd's socket is gone; the daemon works without it.
                return
