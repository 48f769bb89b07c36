"""Methods on bridges: open one, list them, revoke one.

Clients on another host or in a container reach this daemon over a bridge. `bridge_open` returns the
bridge's socket and credential; no other answer contains the credential. The bridge ends with the
connection that asked for it, so a command that is killed leaves no bridge behind.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from capd.actors.control import documents
from capd.actors.control.actors import MethodError
from capd.adapters.clients.open_bridges import NoBridgeError, OpenBridge, OpenBridges
from capd.adapters.clients.peers import Peer
from capd.adapters.frame_writer import FrameWriter
from capd.adapters.line_texts import one_line
from capd_protos import socket as frames


class BridgeServer(Protocol):
    """Accepts the connections of a bridge."""

    async def serve(self, bridge: OpenBridge) -> None:
        """Serve a bridge until it ends."""
        ...

    async def forget(self, bridge: OpenBridge) -> None:
        """End the sessions of a bridge, and delete their saved records."""
        ...


class BridgeMethods:
    """The control methods that open, list and revoke bridges."""

    def __init__(
        self, bridges: OpenBridges | None = None, gateway: BridgeServer | None = None
    ) -> None:
        """Create the methods. Without `bridges` and `gateway`, no bridge can be opened."""
        self._bridges = bridges
        self._gateway = gateway
        self.methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "bridges": self._list,
            "bridge_revoke": self._revoke,
        }

    def listed(self) -> list[dict[str, Any]]:
        """Return the open bridges, for the status."""
        return [_entry(each) for each in self._bridges or ()]

    async def hold(
        self,
        request_id: str | float | None,
        params: frames.BridgeOpenParams,
        writer: FrameWriter,
        peer: Peer,
    ) -> None:
        """Open a bridge, answer the request, and serve the bridge until it is revoked.

        Cancelling this ends the bridge as well.

        Raises:
            MethodError: the bridge cannot be opened.
        """
        if self._bridges is None or self._gateway is None:
            raise MethodError(frames.UNAVAILABLE, "this daemon has no bridges")
        try:
            with self._bridges.opened(params.name, params.kind, params.target, peer.pid) as opened:
                bridge, credential = opened
                result = {
                    "schema": documents.SCHEMA,
                    "name": bridge.name,
                    "socket": str(bridge.path),
                    "credential": credential,
                }
                await writer.send(_line({"id": request_id, "result": result}))
                await self._gateway.serve(bridge)
                ended = {"name": bridge.name, "reason": "revoked"}
                await writer.send(_line({"method": "bridge_ended", "params": ended}))
        except NoBridgeError as error:
            raise MethodError(frames.REFUSED, str(error)) from None

    async def _list(self, _: frames.NoParams) -> dict[str, Any]:
        configured = self._bridges.configured if self._bridges is not None else []
        return {"schema": documents.SCHEMA, "bridges": self.listed(), "configured": configured}

    async def _revoke(self, params: frames.BridgeParams) -> dict[str, Any]:
        bridge = self._bridges.revoke(params.name) if self._bridges is not None else None
        if bridge is None or self._gateway is None:
            raise MethodError(frames.NOT_FOUND, f"no bridge {params.name[:60]!a} is open")
        await self._gateway.forget(bridge)
        return {"schema": documents.SCHEMA, "revoked": bridge.name}


def _line(message: dict[str, Any]) -> bytes:
    return one_line(msgspec.json.encode({"jsonrpc": "2.0", **message}))


def _entry(bridge: OpenBridge) -> dict[str, Any]:
    return {
        "name": bridge.name,
        "kind": bridge.kind,
        "target": bridge.target,
        "socket": str(bridge.path),
        "pid": bridge.pid,
        "opened_at": bridge.opened_at,
        "sessions": bridge.sessions,
        "refused": bridge.refused,
    }
