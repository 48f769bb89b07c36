"""MCP servers that are reached by URL: transports, limits, and logins."""
