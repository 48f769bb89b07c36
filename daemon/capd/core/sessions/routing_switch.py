"""Whether a session's messages are routed, and so may switch capabilities on (docs/surface.md).

The first setting that exists decides: that of the nearest folder that contains the session's
project, then that of the session's client, then the global one. A session's own setting overrides
all of them (`SessionView.own_routing`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class RoutingSwitch:
    """Whether messages are routed, by the configuration: by folder, by client, else `is_on`."""

    is_on: bool = True
    clients: Mapping[str, bool] = field(default_factory=dict)
    """The setting for each client, by the name that the client gives."""
    projects: Mapping[str, bool] = field(default_factory=dict)
    """The setting for each folder and all folders inside, by the folder's absolute path."""

    def of(self, names: Iterable[str], project: str) -> bool:
        """Return whether messages of a client are routed in `project`.

        The client is known by any of `names`.
        """
        place = PurePosixPath(project)
        around = [str(folder) for folder in (place, *place.parents)] if project else []
        choices = [self.projects[folder] for folder in around if folder in self.projects]
        choices += [self.clients[name] for name in names if name in self.clients]
        return choices[0] if choices else self.is_on

    @property
    def is_on_for_any(self) -> bool:
        """Whether there may be a session whose messages are routed."""
        return self.is_on or any(self.clients.values()) or any(self.projects.values())


def switched(*, is_on: bool) -> str:
    """Return the text that confirms that routing was switched on or off in a session."""
    if is_on:
        return "Messages of this session switch capabilities on by themselves."
    return "Messages of this session switch nothing on; `capd routing on` has them do it again."
