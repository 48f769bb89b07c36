"""Dependency scripts that a capability requires and its tap does not have."""

from collections.abc import Callable, Collection, Iterable

from capd.core.taps.catalog import Tap
from capd_protos.types import CapabilityId, Finding

MOST_LOOKED_UP = 500
"""Distinct commands: each is looked for in every folder of the PATH."""


def is_needed(commands: Collection[str], found: Collection[str]) -> bool:
    """Tell whether servers with these commands need a script that is missing.

    `found` are the commands that are on the PATH: what a script would install is there already.
    """
    return not commands or any(command not in found for command in commands)


def missing_scripts(tap: Tap, has_command: Callable[[str], bool]) -> tuple[Finding, ...]:
    """Return a finding for each; only a warning if what it would install is there already."""
    findings = []
    for capability in tap.capabilities:
        commands = [server.program for server in capability.servers if server.program]
        found = [command for command in commands if has_command(command)]
        is_there = not is_needed(commands, found)
        path = f"capabilities/{capability.id.name}/{capability.provider}.toml"
        for script in capability.requires:
            if script in tap.scripts:
                continue
            reason = f"requires {script!r}, and the tap has no deps/{script}.sh"
            if is_there:
                reason += f"; {', '.join(commands)} is on the PATH"
            findings.append(Finding(path, 0, reason, "warning" if is_there else "error"))
    return tuple(findings)


def missing_programs(
    taps: Iterable[Tap], has_command: Callable[[str], bool]
) -> dict[CapabilityId, tuple[str, ...]]:
    """Return the commands that capabilities need and that are not installed.

    A command that a dependency script of the tap may install is not included.
    """
    known: dict[str, bool] = {}
    missing: dict[CapabilityId, tuple[str, ...]] = {}
    for tap in taps:
        for capability in tap.capabilities:
            if any(script in tap.scripts for script in capability.requires):
                continue
            lost: dict[str, None] = {}
            for server in capability.servers:
                command = server.program
                if not command or "{{" in command:
                    continue
                if command not in known:
                    known[command] = len(known) >= MOST_LOOKED_UP or has_command(command)
                if not known[command]:
                    lost[command] = None
            if lost:
                missing[capability.id] = tuple(lost)
    return missing
