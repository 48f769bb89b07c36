"""Follows the settings: what a session begins with, and what changes later.

Policy and caps hold for every session at once. What a client has listed stays as it was for the
length of its session (mode, pins, domain): the model's cache rests on it (docs/design/surface.md).
"""

from capd.actors.session.results import ResultStorage
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
        results: ResultStorage,
    ) -> None:
        """`rules` and `domains` count where there are no settings that live."""
        self._rules = rules
        self._domains = domains
        self._live = live
        self._results = results

    async def load(self, project: str) -> None:
        """Read what a project sets, before a session of it begins."""
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

    @property
    def are_live(self) -> bool:
        """Whether they can change while the daemon runs."""
        return self._live is not None

    def on_change(self) -> None:
        """Take over what holds for all sessions together."""
        if self._live is not None:
            self._results.limits = result_limits(self._live.current)
