"""Chooses a server's sandbox from the user's settings and the server's definition.

A definition may ask for a stronger sandbox, never for a weaker one. The user's setting for a server
overrides it. Servers that a project's files define run in a sandbox by default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import get_args

from capd.core.globs import matches
from capd.core.servers.sandbox import Level, MaskName, SandboxRequest

LEVELS: tuple[Level, ...] = get_args(Level)
"""The weakest first."""
NETWORK = "network"


@dataclass(frozen=True, slots=True)
class SandboxRule:
    """The user's settings for some servers; None leaves a setting undecided."""

    level: Level | None = None
    masks: tuple[MaskName, ...] | None = None
    network: bool | None = None


@dataclass(frozen=True, slots=True)
class SandboxRules:
    """The user's settings for all servers, and for some by name."""

    level: Level = "guard"
    masks: tuple[MaskName, ...] = ()
    project: Level = "strict"
    """The level of servers that a project's files define."""
    servers: Mapping[str, SandboxRule] = field(default_factory=dict)
    """By globs of their names; the first that matches counts."""

    def sandbox_request(
        self, name: str, declared: str, *, is_project: bool, least: Level = "off"
    ) -> SandboxRequest:
        """Return the sandbox for a server; `declared` is its definition's `sandbox`.

        `least` is the weakest level allowed, even against the user's setting for the server.

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
            # Whoever agreed to the definition has seen what it asks for.
            asks_network if rule.network is None else rule.network,
            # A user who masks nothing from a server does not want a mount namespace either.
            is_covered=rule.masks is None or bool(rule.masks),
        )


def declared_level(declared: str) -> tuple[Level | None, bool]:
    """Return the request in a definition's `sandbox`, such as `strict+network`.

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
