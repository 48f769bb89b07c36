"""Keeps a bridge open at this user's daemon, until the daemon ends."""

from typing import Any

from capd_client.control import Control


class HeldBridge:
    """The daemon's end of a bridge. The bridge exists for as long as this control connection.

    Raises:
        DaemonDownError, ControlError: as for `Control`.
    """

    def __init__(self, socket: str, name: str, kind: str, target: str) -> None:
        self._control = Control(socket, client="capd bridge")
        try:
            params = {"name": name, "kind": kind, "target": target}
            opened = self._control.call("bridge_open", params)
        except BaseException:
            self._control.close()
            raise
        self.socket = str(opened["socket"])
        self.credential = str(opened["credential"])

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when `next_event` has an event to return."""
        return self._control.fileno()

    def next_event(self) -> dict[str, Any]:
        """Return the daemon's next message, waiting for it.

        Raises:
            DaemonDownError: the daemon is gone, and the bridge with it.
        """
        return self._control.read_event()

    def close(self) -> None:
        """End the bridge, by closing the control connection that it depends on."""
        self._control.close()
