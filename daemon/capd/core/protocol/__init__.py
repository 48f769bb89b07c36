"""MCP: its two eras, whose a request is, and how a call ends (40-protocol)."""
