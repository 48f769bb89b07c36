"""The identity of a session, and the outcome of a request in it."""

from dataclasses import dataclass

from capd.core.errors import CapdError
from capd_protos.types import SessionKey, WireName


class NotActivatedError(CapdError):
    """A capability could not be switched on; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was done, in the sentence that a model reads, and the wire names concerned."""

    text: str
    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    is_ok: bool = True

    @property
    def problem(self) -> str:
        """Why it could not be done; empty if it was done."""
        return "" if self.is_ok else self.text


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Which client a session belongs to, and where it works."""

    key: SessionKey
    client: str
    project: str
    domain: str = ""
    """The domain of its capabilities; empty for all."""
    bridge: str = ""
    """The bridge that it came over; empty for a local session."""
    far_project: str = ""
    """The project's path on the far side of the bridge, which is never used as a path here."""
    parent: str = ""
    """The session that started this one, if any: it may read the results of this one."""
