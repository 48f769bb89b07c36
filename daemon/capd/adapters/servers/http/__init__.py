"""MCP servers that are reached by URL: the wires to them, their limits, and their logins."""
