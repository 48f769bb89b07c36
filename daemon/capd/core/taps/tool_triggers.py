"""Triggers of a capability that come from the tools of its servers.

A definition with `triggers_from_tools = true` in its `config.toml` has few words of its own: `capd
add` without `--trigger` and `capd import` write such definitions. The first tool list of each of
its servers becomes further triggers. Later lists change nothing: otherwise a server could choose
new words for itself whenever it starts, and be switched on by messages that are not for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from capd.core.servers.identity import server_identity
from capd.core.taps.catalog import Tap
from capd.core.taps.overlays import lacking
from capd.core.taps.tap_format import CapabilityRead
from capd_protos.types import ServerIdentity, ServerName

Phrases = Mapping[ServerIdentity, Sequence[str]]
"""The triggers that the first tool list of each server gave."""


def servers_that_give_triggers(taps: Iterable[Tap]) -> dict[ServerIdentity, ServerName]:
    """Return the servers whose tools become triggers of a capability."""
    return {
        server_identity(server): server.name
        for tap in taps
        for capability in tap.capabilities
        if capability.triggers_from_tools
        for server in capability.servers
    }


def with_tool_triggers(taps: Iterable[Tap], phrases: Phrases) -> tuple[Tap, ...]:
    """Return `taps` with the `phrases` of their servers as extra triggers."""
    return tuple(
        replace(tap, reads=tuple(_with_phrases(read, phrases) for read in tap.reads))
        if any(each.triggers_from_tools for each in tap.capabilities)
        else tap
        for tap in taps
    )


def _with_phrases(read: CapabilityRead, phrases: Phrases) -> CapabilityRead:
    capability = read.capability
    if capability is None or not capability.triggers_from_tools:
        return read
    given = [
        phrase
        for server in capability.servers
        for phrase in phrases.get(server_identity(server), ())
    ]
    extra = (*capability.extra_triggers, *lacking(capability, given))
    return replace(read, capability=msgspec.structs.replace(capability, extra_triggers=extra))
