"""Servers of a public MCP registry: parses their entries, ranks them, and says how to start one."""
