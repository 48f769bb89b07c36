"""MCP: its two generations, and how a call ends (docs/design/relay.md)."""
