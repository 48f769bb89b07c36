"""Finds the dependency scripts and programs that capabilities need and that are missing."""

from collections.abc import Callable, Collection, Iterable

from capd.core.taps.catalog import Tap
from capd_protos.types import CapabilityId, Finding

MOST_LOOKED_UP = 500
"""The most commands that are looked up: each lookup reads every folder of the PATH."""


def is_needed(commands: Collection[str], found: Collection[str]) -> bool:
    """Tell whether servers that run these commands still need a dependency script.

    `found` are the commands that are on the PATH. If all `commands` are among them, everything that
    the script would install is there. Without any command nothing shows that, so the script counts
    as needed.
    """
    return not commands or any(command not in found for command in commands)


def missing_scripts(tap: Tap, has_command: Callable[[str], bool]) -> tuple[Finding, ...]:
    """Return a finding for each script that a capability requires and the tap does not have.

    It is only a warning if all commands of the capability are on the PATH.
    """
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
    """Return, by capability, the commands of its servers that are not installed.

    A capability with a dependency script is left out, because the script may install them.
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
                # With `where = "project"`, the far side of a bridge may need the command instead.
                if not command or "{{" in command or server.where == "project":
                    continue
                if command not in known:
                    known[command] = len(known) >= MOST_LOOKED_UP or has_command(command)
                if not known[command]:
                    lost[command] = None
            if lost:
                missing[capability.id] = tuple(lost)
    return missing
