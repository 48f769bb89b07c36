"""The saved record of a login at a remote server, and the errors of a login."""

from typing import Any

import msgspec

from capd.core.errors import CapdError


class LoginNeededError(CapdError):
    """A person has to log in before the server accepts capd."""


class LoginFailedError(CapdError):
    """A login failed; the text says why."""


class NoRevocationError(CapdError):
    """The authorization server names no endpoint at which tokens are revoked."""


class LoginRecord(msgspec.Struct, frozen=True):
    """One login: its tokens, the client they were issued to, and the server that issued them."""

    tokens: dict[str, Any]
    client: dict[str, Any]
    server_metadata: dict[str, Any]
    """Metadata of the authorization server. Credentials are sent to no other issuer."""
    resource_metadata: dict[str, Any] | None = None
    expires_at: float | None = None
    """When the access token expires, in seconds since the epoch; None if that is not known."""

    def __repr__(self) -> str:
        """Show the record without secrets."""
        return "Record(...)"

    @property
    def access_token(self) -> str:
        """The token that requests are sent with."""
        return str(self.tokens.get("access_token", ""))
