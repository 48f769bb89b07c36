"""What a login at a remote server leaves behind, and the two ways in which it does not."""

from typing import Any

import msgspec

from capd.core.errors import CapdError


class LoginNeededError(CapdError):
    """A person has to do something before the server lets capd in."""


class LoginFailedError(CapdError):
    """A login did not come to its end; the text says why."""


class Record(msgspec.Struct, frozen=True):
    """One login: tokens, the client that they were given to, and where they came from."""

    tokens: dict[str, Any]
    client: dict[str, Any]
    server_metadata: dict[str, Any]
    """Of the authorization server; credentials go to no other issuer than this one."""
    resource_metadata: dict[str, Any] | None = None
    expires_at: float | None = None
    """As the wall clock says, for it must hold over a restart."""

    def __repr__(self) -> str:
        """Show no secret."""
        return "Record(...)"

    @property
    def access_token(self) -> str:
        """What a request is sent with."""
        return str(self.tokens.get("access_token", ""))
