"""What the wire of a connection to a remote server works with, and how it ends."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from capd.adapters.servers.http.remote_spec import RemoteSpec

if TYPE_CHECKING:
    import httpx2

    from capd.adapters.servers.http.logins import Login


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a connection is of no more use, in words that go after `it`."""

    reason: str
    is_parked: bool = False
    """A person has to do something first, so trying again is of no use."""

    def __str__(self) -> str:
        """Render for a person."""
        return self.reason


@dataclass(frozen=True, slots=True)
class Outlet:
    """Where a wire puts what it hears."""

    deliver: Callable[[bytes], Awaitable[None]]
    lose: Callable[[Loss], None]


@dataclass(frozen=True, slots=True)
class Link:
    """What a wire works with."""

    spec: RemoteSpec
    client: "httpx2.AsyncClient"
    login: "Login"
    outlet: Outlet
    nursery: trio.Nursery
    """Where the tasks of the connection live."""
