"""The domain of a session, such as `work`, which decides what capabilities it may use.

The configuration sets a domain for folders and for clients. The nearest configured folder that
contains the session's project decides. If there is none, the session's client decides. A session
without a domain may use every capability, and a capability without domains may be used in every
session.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Domains:
    """The domains, such as `work`, that the configuration sets for folders and for clients."""

    clients: Mapping[str, str] = field(default_factory=dict)
    """The domain of each client, by the name that the client gives."""
    projects: Mapping[str, str] = field(default_factory=dict)
    """The domain of each folder and all folders inside, by the folder's absolute path."""

    def of(self, client: str, project: str) -> str:
        """Return the domain of a session, such as `work`; empty if it has none.

        `client` is the client's name, and `project` the path of the session's project.
        """
        place = PurePosixPath(project)
        around = [str(folder) for folder in (place, *place.parents)] if project else []
        found = (self.projects[folder] for folder in around if folder in self.projects)
        return next(found, "") or self.clients.get(client, "")


def is_inside(domain: str, domains: Collection[str]) -> bool:
    """Tell whether a session of a domain, such as `work`, may use a capability of `domains`.

    The result is also true if `domain` or `domains` is empty.
    """
    return not domain or not domains or domain in domains
