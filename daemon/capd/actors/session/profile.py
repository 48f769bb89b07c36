"""Chooses a session's profile, and applies changes of it (docs/profiles.md).

    session opens, next turn, settings change, `capd profile use`
        ──> read the checkout ──> choose ──another one──> policy, pins, accounts, capabilities

A change of accounts releases the servers that get secrets. The next use starts each again, with the
new values.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import structlog

from capd.adapters.clients.session_environment import SessionEnvironments
from capd.adapters.git_files import read_checkout
from capd.adapters.timed_reads import NoAnswerError, TimedReads
from capd.core.sessions.bridges import BridgeRules, with_bridge
from capd.core.sessions.git_checkout import NO_CHECKOUT, GitCheckout
from capd.core.sessions.profiles import Profile, ProfileChoice, SessionFacts, choose, with_profile
from capd.core.sessions.session_rules import SessionRules
from capd_protos.types import SandboxLevel, SessionKey

READ_PATIENCE = 1.0
"""Seconds for reading a checkout; after that its last known state counts."""

log = structlog.get_logger(actor="curator")


class ProfileReads:
    """Reads the git checkouts of projects, with a time limit, for all sessions."""

    def __init__(self) -> None:
        self._reads = TimedReads(READ_PATIENCE)

    async def checkout(self, project: str, last: GitCheckout) -> GitCheckout:
        """Return the git checkout of a project; `last` if the project's folder does not answer."""
        try:
            return await self._reads.of(project, lambda: read_checkout(project))
        except NoAnswerError as error:
            log.info("checkout_not_read", project=project, reason=str(error))
            return last


class ProfileChange(NamedTuple):
    """What a change of profile means for a session's servers."""

    has_other_secrets: bool
    has_other_sandbox: bool


class SessionProfile:
    """Chooses the profile of one session, and remembers the choice."""

    # Slots save memory: every idle session has one of these objects.
    __slots__ = (
        *("_bridge", "_bridges", "_environments", "_inherited", "_key", "_last", "_profiles"),
        *("_project", "_reads", "_variable", "by_hand", "choice"),
    )

    def __init__(
        self,
        reads: ProfileReads,
        environments: SessionEnvironments,
        profiles: Callable[[], Mapping[str, Profile]],
        *,
        project: str,
        variable: str = "",
        inherited: Callable[[], str] = lambda: "",
        bridge: str = "",
        bridges: Callable[[], Mapping[str, BridgeRules]] = dict,
    ) -> None:
        """Create it.

        `variable` is the client's CAPD_PROFILE. `inherited` returns the parent session's profile.

        For a session over a `bridge`, the profile is named by the bridge's table in `bridges`; only
        a person on this machine can choose another.
        """
        self.by_hand = ""
        self._bridge = bridge
        self._bridges = bridges
        self.choice = ProfileChoice()
        self._environments = environments
        self._inherited = inherited
        self._key = SessionKey("")
        self._last = NO_CHECKOUT
        self._profiles = profiles
        self._project = project
        self._reads = reads
        self._variable = variable

    def copied(self) -> "SessionProfile":
        """Return a copy with the same choice, for the session of a sub-agent."""
        copied = SessionProfile(
            self._reads,
            self._environments,
            self._profiles,
            project=self._project,
            variable=self._variable,
            inherited=self._inherited,
            bridge=self._bridge,
            bridges=self._bridges,
        )
        copied.by_hand, copied.choice, copied._last = self.by_hand, self.choice, self._last
        return copied

    async def refresh(self, clients: tuple[str, ...]) -> ProfileChange | None:
        """Choose the profile again; return what the change means for the session's servers.

        Return None if it is the same profile, and has not been edited. `clients` are the names of
        the session's client, which a profile may be limited to.
        """
        if self._bridge:
            return self._use(self._of_bridge())
        profiles = self._profiles()
        if any(each.remotes or each.branches for each in profiles.values()) and self._project:
            self._last = await self._reads.checkout(self._project, self._last)
        chosen = choose(
            profiles,
            SessionFacts(clients, self._project, self._last),
            by_hand=self.by_hand,
            variable=self._variable,
            inherited=self._inherited(),
        )
        return self._use(chosen)

    def _of_bridge(self) -> ProfileChoice:
        table = self._bridges().get(self._bridge, BridgeRules())
        if not self.by_hand and not table.profile:
            return ProfileChoice()
        chosen = choose(
            self._profiles(), SessionFacts(), by_hand=self.by_hand, inherited=table.profile
        )
        return chosen if self.by_hand else replace(chosen, why=f"[bridges.{self._bridge}] profile")

    def _use(self, chosen: ProfileChoice) -> ProfileChange | None:
        before, namespace, sandbox = self.choice.profile, self.namespace, self.sandbox
        self.choice = chosen
        if before == chosen.profile:
            return None
        if self._key:
            self._give_environment(self._key)
        log.info("profile", session=self._key, name=chosen.name, why=chosen.why)
        return ProfileChange(namespace != self.namespace, sandbox != self.sandbox)

    def attach(self, session: SessionKey) -> None:
        """Apply the profile's secrets and sandbox to a session, now and after each change."""
        self._key = session
        self._give_environment(session)

    def _give_environment(self, session: SessionKey) -> None:
        self._environments.use_namespace(session, self.namespace)
        self._environments.use_sandbox(session, self.sandbox)

    @property
    def namespace(self) -> str:
        """The namespace of the profile's secrets, the prefix of their names; empty for none."""
        return self.choice.profile.secrets if self.choice.profile is not None else ""

    @property
    def sandbox(self) -> SandboxLevel:
        """The weakest sandbox that the profile allows for servers; `off` without a profile."""
        return self.choice.profile.sandbox if self.choice.profile is not None else "off"

    def applied(self, rules: SessionRules) -> SessionRules:
        """Return the session's rules with those of its profile applied."""
        applied = with_profile(rules, self.choice.profile)
        return with_bridge(applied, self._bridge, self._bridges()) if self._bridge else applied
