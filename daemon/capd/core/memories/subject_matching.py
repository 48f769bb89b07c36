"""Whether a memory is about a capability or a tool."""

from capd.core.tools.tool_filter import is_named
from capd_protos.types import CapabilityId, MemorySpec, ServerName, ToolName, WireName


def is_of_capability(memory: MemorySpec, capability: CapabilityId) -> bool:
    """Tell whether a memory belongs to this capability, which it names as `name` or `tap/name`."""
    return memory.capability in {str(capability.name), str(capability)}


def is_of_tool(memory: MemorySpec, server: ServerName, tool: ToolName, name: WireName) -> bool:
    """Tell whether a memory belongs to a tool; clients know the tool as `name`."""
    return bool(memory.tool) and is_named(memory.tool, server, tool, name)
