"""The data that a transport to a remote server needs, and the reason why its connection ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from capd.adapters.servers.http.remote_spec import RemoteSpec

if TYPE_CHECKING:
    import httpx2

    from capd.adapters.servers.http.logins import Login


@dataclass(frozen=True, slots=True)
class ConnectionLoss:
    """Why a connection is lost, in words that continue a sentence beginning with `it`."""

    reason: str
    is_parked: bool = False
    """Whether a person must act first, so that retrying is useless."""

    def __str__(self) -> str:
        """Return the reason, in words that continue a sentence beginning with `it`."""
        return self.reason


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """The callbacks for what a transport receives: lines, and the loss of the connection."""

    deliver: Callable[[bytes], Awaitable[None]]
    lose: Callable[[ConnectionLoss], None]


@dataclass(frozen=True, slots=True)
class RemoteLink:
    """The definition, the HTTP client, the login and the callbacks of one connection."""

    spec: RemoteSpec
    client: "httpx2.AsyncClient"
    login: "Login"
    outlet: LinkCallbacks
    nursery: trio.Nursery
    """The nursery of the connection's tasks."""
