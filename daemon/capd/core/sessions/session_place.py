"""Who a session is, where it works, and what came of a request to switch something."""

from dataclasses import dataclass

from capd.core.errors import CapdError
from capd_protos.types import SessionKey, WireName


class NotActivatedError(CapdError):
    """A capability could not be switched on; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, in the words that a model gets, and in wire names."""

    text: str
    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    is_ok: bool = True


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Who a session is and where it works."""

    key: SessionKey
    client: str
    project: str
    domain: str = ""
    """Which domain's capabilities it is for; empty for all."""
    parent: str = ""
    """The session that started this one, if one did: it may read that one's results."""
