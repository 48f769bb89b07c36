"""The curators' part that follows the settings: what a session begins with, and what changes later.

Policy and caps hold for every session at once. What a client has listed stays as it was for the
length of its session (mode, pins, domain): the model's cache rests on it (docs/design/surface.md).
"""

from collections.abc import Iterable

from capd.actors.session.results import ResultStorage
from capd.actors.session.session import Curator
from capd.adapters.live_settings import LiveSettings
from capd.adapters.session_settings import result_limits
from capd.core.sessions.domains import Domains
from capd.core.sessions.session_rules import SessionRules


class FollowedSettings:
    """What sessions go by: settings that live, or rules that stay as they are."""

    def __init__(
        self,
        rules: SessionRules,
        domains: Domains,
        live: LiveSettings | None,
        results: ResultStorage | None,
    ) -> None:
        """`rules` and `domains` count where there are no settings that live."""
        self._rules = rules
        self._domains = domains
        self._live = live
        self._results = results

    async def meet(self, project: str) -> None:
        """Learn what holds in `project`, before a session of it begins."""
        if self._live is not None:
            await self._live.meet(project)

    def rules(self, project: str) -> SessionRules:
        """Return the rules of a session of `project`."""
        return self._rules if self._live is None else self._live.rules(project)

    def domain(self, client: str, project: str) -> str:
        """Return the domain of a session that begins."""
        if self._live is None:
            return self._domains.of(client, project)
        return self._live.domain(client, project)

    def changed(self, curators: Iterable[Curator]) -> None:
        """Have sessions go by what holds by now."""
        if self._live is None:
            return
        for curator in curators:
            curator.follow(self._live.rules(curator.place.project))
        if self._results is not None:
            self._results.limits = result_limits(self._live.current)
