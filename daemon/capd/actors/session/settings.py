"""The settings of sessions: which of them change immediately, and which stay for a whole session.

Policy, and how many capabilities and tools may be on, change immediately in every session. The
mode, the pins and the domain stay the same for the length of a session, because a different list
would invalidate the model's prompt cache (docs/design/surface.md).
"""

from collections.abc import Mapping

from capd.actors.session.results import ResultStorage
from capd.adapters.live_settings import LiveSettings
from capd.adapters.session_settings import result_limits
from capd.core.sessions.bridges import BridgeRules
from capd.core.sessions.domains import Domains
from capd.core.sessions.profiles import Profile
from capd.core.sessions.session_rules import SessionRules


class FollowedSettings:
    """The settings for sessions, from the live configuration or from fixed rules."""

    def __init__(
        self,
        rules: SessionRules,
        domains: Domains,
        live: LiveSettings | None,
        results: ResultStorage,
    ) -> None:
        """Create it. `rules` and `domains` are used if there are no live settings."""
        self._rules = rules
        self._domains = domains
        self._live = live
        self._results = results

    async def load(self, project: str) -> None:
        """Load the settings of a project, before its first session starts."""
        if self._live is not None:
            await self._live.load_project(project)

    def rules(self, project: str) -> SessionRules:
        """Return the settings that apply to sessions of `project`.

        Equal settings are returned as one object, because most projects have none of their own.
        """
        if self._live is not None and (rules := self._live.rules(project)) != self._rules:
            self._rules = rules
        return self._rules

    def profiles(self) -> Mapping[str, Profile]:
        """Return the user's profiles by name."""
        return {} if self._live is None else self._live.current.sessions_profiles()

    def bridges(self) -> Mapping[str, BridgeRules]:
        """Return the user's bridges by name."""
        return {} if self._live is None else self._live.current.bridge_rules()

    def domain(self, client: str, project: str) -> str:
        """Return the domain for a session that starts, such as `work`; empty if it has none.

        The domain limits which capabilities the session may use.
        """
        if self._live is None:
            return self._domains.of(client, project)
        return self._live.domain(client, project)

    @property
    def are_live(self) -> bool:
        """Whether the settings can change while the daemon runs."""
        return self._live is not None

    def on_change(self) -> None:
        """Apply changed limits of results. The curator applies all other changes."""
        if self._live is not None:
            self._results.limits = result_limits(self._live.current)
