"""The data that are needed to connect to a server by URL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from capd_protos.types import OAuthClient

IDLE_TIMEOUT = 1800.0


@dataclass(frozen=True, slots=True)
class RemoteSpec:
    """A server by its URL. The URL and the headers may contain secrets."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    transport: Literal["", "http", "sse"] = ""
    """Empty: streamable HTTP, or the older transport if the server does not support it."""
    auth: Literal["oauth", "none"] = "oauth"
    idle_timeout: float = IDLE_TIMEOUT
    """Seconds for which a request waits for the next event of its answer; at least the `timeout` of
    the server's definition."""
    client: OAuthClient | None = field(default=None, repr=False)
    """The OAuth client with its secret, if the definition names one."""
    has_others: bool = False
    """Whether the server has further addresses, so that a failure of this one ends the connection
    instead of only the call."""
    account: str = ""
    """The account of the login, if a person has several there; empty for the default one."""
    client_metadata_url: str = ""
    """The URL of capd's metadata document as an OAuth client. It is used as the client id if the
    authorization server accepts such ids."""
