"""What a connection to a remote server starts from, and how it ends."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import trio

from capd_protos.types import OAuthClient

if TYPE_CHECKING:
    import httpx2

    from capd.adapters.servers.http.logins import Login

IDLE_TIMEOUT = 1800.0


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """A server by its URL. The URL and the headers may hold secrets."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["", "http", "sse"] = ""
    """Empty: streamable HTTP, or the older transport if the server refuses that."""
    auth: Literal["oauth", "none"] = "oauth"
    idle_timeout: float = IDLE_TIMEOUT
    """Seconds for which a request waits for the next event of its answer; no less than the
    longest deadline of its calls."""
    client: OAuthClient | None = field(default=None, repr=False)
    """Who logs in, where the authorization server knows it beforehand; with its secret."""


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
