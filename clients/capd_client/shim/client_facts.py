"""The shim constants of `clients.toml`: clients/regenerate_clients.py writes them."""

SESSION_VARIABLES = (
    "CLAUDE_CODE_SESSION_ID",
    "COPILOT_AGENT_SESSION_ID",
    "QWEN_CODE_SESSION_ID",
)
"""Where a client says which of its conversations started us; its hooks say the same."""

RELISTING_CLIENTS = (
    "claude-code",
    "gemini-cli-mcp-client",
    "opencode",
)
"""Clients that list again within a turn or before the next, by the name in their `clientInfo`."""
