"""capd, a per-user daemon for MCP capabilities: rules in `core` decide, actors carry that out."""

__version__ = "0.1.0"
