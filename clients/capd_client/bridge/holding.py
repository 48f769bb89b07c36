"""Holds a bridge open at this user's daemon, across restarts of the daemon."""

from typing import Any

from capd_client.control import Control


class HeldBridge:
    """The daemon's end of a bridge: it is there as long as this connection is.

    Raises as `Control`.
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
        """Return the descriptor that is readable when there is something to `hear`."""
        return self._control.fileno()

    def hear(self) -> dict[str, Any]:
        """Return what the daemon says next; it may wait.

        Raises:
            DaemonDownError: the daemon is gone, and the bridge with it.
        """
        return self._control.heard()

    def close(self) -> None:
        """End the bridge."""
        self._control.close()
