"""The domain of a session, as configured for its project or its client.

The nearest folder around the project counts first, then the client. A session without a domain is
not filtered, and neither is a capability without domains.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True)
class Domains:
    """The configured domains."""

    clients: Mapping[str, str] = field(default_factory=dict)
    """By the name that a client gives."""
    projects: Mapping[str, str] = field(default_factory=dict)
    """By absolute path; folders inside count as well."""

    def of(self, client: str, project: str) -> str:
        """Return the domain of a session; empty if it has none."""
        place = PurePosixPath(project)
        around = [str(folder) for folder in (place, *place.parents)] if project else []
        found = (self.projects[folder] for folder in around if folder in self.projects)
        return next(found, "") or self.clients.get(client, "")


def is_inside(domain: str, domains: Collection[str]) -> bool:
    """Tell whether a session of `domain` may have a capability that is for `domains`."""
    return not domain or not domains or domain in domains
