"""Chooses a server's sandbox from the user's settings and the server's definition.

A definition may ask for a stronger sandbox than the user's default, never for a weaker one. The
user's setting for a server by name overrides both. Servers that a project's files define have a
default of their own, `strict` unless the user changes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from capd.core.globs import matches
from capd.core.servers.sandbox import Level, MaskName, SandboxRequest

LEVELS: tuple[Level, ...] = get_args(Level)
"""The sandbox levels, the weakest first."""
NETWORK = "network"


@dataclass(frozen=True, slots=True)
class SandboxRule:
    """The user's sandbox settings for servers whose names match one glob.

    None stands for the default.
    """

    level: Level | None = None
    masks: tuple[MaskName, ...] | None = None
    network: bool | None = None


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """The user's sandbox settings, for all servers and for some by name."""

    level: Level = "guard"
    masks: tuple[MaskName, ...] = ()
    project: Level = "strict"
    """The level of servers that a project's files define."""
    servers: Mapping[str, SandboxRule] = field(default_factory=dict)
    """The settings for servers by a glob of their names; the first glob that matches counts."""

    def sandbox_request(
        self, name: str, declared: str, *, is_project: bool, least: Level = "off"
    ) -> SandboxRequest:
        """Return the sandbox for the server `name`; `declared` is `sandbox` of its definition.

        `is_project` says that a project's files define it. `least` is the weakest level that the
        session's profile allows, which even the user's setting for the server cannot weaken.

        Raises:
            ValueError: `declared` is invalid.
        """
        asked, asks_network = declared_level(declared)
        usual = self.project if is_project else self.level
        level = LEVELS[max(LEVELS.index(usual), LEVELS.index(asked or usual))]
        matching = (rule for glob, rule in self.servers.items() if matches(name, glob))
        rule = next(matching, SandboxRule())
        return SandboxRequest(
            LEVELS[max(LEVELS.index(rule.level or level), LEVELS.index(least))],
            self.masks if rule.masks is None else rule.masks,
            # The person who trusted the definition has seen that it asks for the network.
            asks_network if rule.network is None else rule.network,
            # A user who masks nothing from a server does not want a mount namespace either.
            is_covered=rule.masks is None or bool(rule.masks),
        )


def declared_level(declared: str) -> tuple[Level | None, bool]:
    """Return the level, and whether the network is asked for, in a text like `strict+network`.

    An empty text asks for nothing.

    Raises:
        ValueError: it is invalid; the text says what is valid.
    """
    if not declared:
        return None, False
    named, plus, more = declared.partition("+")
    known: list[Level] = [each for each in LEVELS if named == each]
    if not known or (plus and more != NETWORK):
        raise ValueError(f"sandbox is {declared!r}: one of {', '.join(LEVELS)}, strict+{NETWORK}")
    return known[0], bool(more)
