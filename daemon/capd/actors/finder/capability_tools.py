"""The finder's part that says what each capability has, by what its servers listed last."""

from collections.abc import Iterable, Mapping

from capd.core.tools.known_tools import KnownTools
from capd_protos.finder import CapabilityTools
from capd_protos.types import CapabilityId, CapabilityName, CapabilitySpec, WireName


def capability_tools(
    capabilities: Iterable[CapabilitySpec],
    known: KnownTools,
    tokens: Mapping[WireName, int] | None,
) -> list[CapabilityTools]:
    """Return each capability once, of two of one name that of the first tap."""
    granted: dict[CapabilityId, list[WireName]] = {}
    for wire, source in known.sources.items():
        for id_ in source.capabilities:
            granted.setdefault(id_, []).append(wire)
    winners: dict[CapabilityName, CapabilitySpec] = {}
    for each in capabilities:
        winners.setdefault(each.id.name, each)
    return [_described(each, granted.get(each.id), tokens) for each in winners.values()]


def _described(
    capability: CapabilitySpec,
    tools: list[WireName] | None,
    tokens: Mapping[WireName, int] | None,
) -> CapabilityTools:
    if tools is None and not capability.servers:
        tools = []
    if tools is None or tokens is None:
        return CapabilityTools(capability, tools)
    return CapabilityTools(capability, tools, sum(tokens[wire] for wire in tools))
