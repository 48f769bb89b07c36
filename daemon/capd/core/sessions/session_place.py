"""What identifies a session, and the outcome of switching something on or off in it."""

from dataclasses import dataclass

from capd.core.errors import CapdError
from capd_protos.types import SessionKey, WireName


class NotActivatedError(CapdError):
    """A capability could not be switched on; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a request: a text for the model, and the tools that came on or went off.

    The tools have the names under which the client knows them.
    """

    text: str
    added: tuple[WireName, ...] = ()
    removed: tuple[WireName, ...] = ()
    is_ok: bool = True

    @property
    def problem(self) -> str:
        """Why the request was not fulfilled; empty if it was."""
        return "" if self.is_ok else self.text


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """Which client a session belongs to, and in which project, domain and bridge it is."""

    key: SessionKey
    client: str
    project: str
    domain: str = ""
    """The domain whose capabilities it may use; empty for all capabilities."""
    bridge: str = ""
    """The bridge that it came over, from another host or a container; empty for a local session."""
    far_project: str = ""
    """The project's path on the far side of the bridge, as it is shown to a person."""
    far_folder: str = ""
    """The same path, for servers that run there; it is never used as a path here."""
    parent: str = ""
    """The key of the session that started this one and may read its results; empty for none."""
    agent: str = ""
    """The client's id of the sub-agent that the session belongs to; empty for a conversation's."""
