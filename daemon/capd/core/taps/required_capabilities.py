"""Capabilities that a skill declares and no tap can give it (10-catalog)."""

from capd.core.taps.catalog import Catalog, Tap, Unknown
from capd_protos.types import Finding


def unknown_capabilities(tap: Tap, catalog: Catalog) -> tuple[Finding, ...]:
    """Return a finding for each, where the skill names it."""
    findings = []
    for read in tap.skill_reads:
        if read.skill is None:
            continue
        for name, line in zip(read.skill.capabilities, read.lines, strict=True):
            found = catalog.find(name)
            if isinstance(found, Unknown):
                near = f" (near names: {', '.join(found.near)})" if found.near else ""
                reason = f"capability {name!r} cannot be switched on: {found.reason}{near}"
                findings.append(Finding(read.path, line, reason))
    return tuple(findings)
