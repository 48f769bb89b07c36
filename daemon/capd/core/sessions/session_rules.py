"""The user's settings for sessions: caps, mode, pins, policy, and the table of clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from capd.core.memories.bootstrap import BootstrapRules
from capd.core.memories.delivery import DEFAULT_BUDGET
from capd.core.sessions.active_set import DEFAULT_CAP, DEFAULT_TOOL_CAP
from capd.core.sessions.approval import ASK_TIMEOUT
from capd.core.sessions.client_traits import ClientTraits, ModeSetting
from capd.core.sessions.policy import Policy, PolicyRules, policy_for, shared_policy
from capd.core.sessions.routing_switch import RoutingSwitch
from capd.core.tools.curation import CurationRules


@dataclass(frozen=True, slots=True)
class SessionRules:
    """The settings of one session; the defaults are those of an empty configuration."""

    cap: int = DEFAULT_CAP
    """The most capabilities with tools that may be on at once."""
    tool_cap: int = DEFAULT_TOOL_CAP
    """The most single tools that may be on at once."""
    mode: ModeSetting = "auto"
    pins: tuple[str, ...] = ()
    """Patterns of the tools that are always listed."""
    kept_pins: tuple[str, ...] | None = None
    """Patterns of the pinned tools that a project keeps on its list; None keeps all of them."""
    share: float = 0.1
    """The share of a client's context that the tools may fill in `pass-through` mode."""
    checks_arguments: bool = True
    """Whether the arguments of a call are checked against the tool's schema before it is sent."""
    shows_notices: bool = True
    """Whether a line tells the user what a message has switched on."""
    unchecked: tuple[str, ...] = ()
    """Globs of servers whose calls are sent without a check of their arguments."""
    everyone: PolicyRules = field(default_factory=lambda: PolicyRules("[policy]"))
    """The policy table that applies to every session."""
    clients: tuple[tuple[str, PolicyRules], ...] = ()
    """Policy tables by a glob of clients' names."""
    projects: tuple[tuple[str, PolicyRules], ...] = ()
    """Policy tables by a project's folder."""
    added: tuple[PolicyRules, ...] = ()
    """The policy tables of the session's profile and bridge."""
    off: tuple[tuple[str, str], ...] = ()
    """The capabilities that a profile switches off, each with the profile's name."""
    table: Mapping[str, ClientTraits] = field(default_factory=dict)
    """The entries of `clients.toml`, by key."""
    routing: RoutingSwitch = field(default_factory=RoutingSwitch)
    learns: bool = True
    """Whether routing learns from what the session does after its decisions."""
    curation: CurationRules = field(default_factory=CurationRules)
    memory_tokens: int = DEFAULT_BUDGET
    """The most tokens of memories that one conversation gets."""
    bootstrap: BootstrapRules = field(default_factory=BootstrapRules)
    """The rules for a project's bootstrap files; `bootstrapped` decides whether they are sent."""
    bootstrapped: RoutingSwitch = field(default_factory=lambda: RoutingSwitch(is_on=False))

    ask_timeout: float = ASK_TIMEOUT
    """Seconds for which a call waits for a person's approval."""
    has_scripts: bool = True
    """Whether sessions may run scripts (docs/scripts.md)."""
    lists_scripts: bool = False
    """Whether the tool that runs scripts is on the list; if not, the instructions name it."""

    def policy(self, names: Sequence[str], project: str) -> Policy:
        """Return what a client that uses any of `names` may use in `project`."""
        found = policy_for(self.everyone, self.clients, self.projects, names, project)
        is_same = not self.added and not self.off
        return found if is_same else shared_policy((*found.tables, *self.added), self.off)
