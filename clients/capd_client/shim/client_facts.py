"""What `clients.toml` says of clients, as far as the shim needs it. Generated; do not edit."""

SESSION_VARIABLES = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID", "QWEN_CODE_SESSION_ID")
RELISTING_CLIENTS = ("claude-code", "opencode", "gemini-cli-mcp-client")
