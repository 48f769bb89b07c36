"""MCP: its two generations, whose a request is, and how a call ends (docs/design/relay.md)."""
