"""What the shim needs of `clients.toml`. Made by regenerate_clients.py: do not edit."""

SESSION_VARIABLES = (
    "CLAUDE_CODE_SESSION_ID",
    "COPILOT_AGENT_SESSION_ID",
    "QWEN_CODE_SESSION_ID",
)
"""Variables with the id of the conversation that started the shim. Hooks send the same id."""

RELISTING_CLIENTS = (
    "claude-code",
    "gemini-cli-mcp-client",
    "opencode",
)
"""Clients that list again within a turn or before the next, by the name in their `clientInfo`."""

HOOK_LIMITS = {
    "claude": 5,
    "code": 5,
    "codex": 5,
    "copilot": 5,
    "cursor": 5,
    "gemini": 5,
    "goose": 5,
    "qwen": 5,
}
"""Seconds that a client lets a prompt hook take, by the name that `capd hook` takes."""

PROGRAMS = {
    "ai-assistant": "jetbrains",
    "avante": "avante",
    "avante.nvim": "avante",
    "claude": "claude",
    "claude-code": "claude",
    "claude-desktop": "claude-desktop",
    "cline": "cline",
    "cline-vscode": "cline-vscode",
    "cn": "continue",
    "code": "vscode",
    "code-insiders": "vscode-insiders",
    "codecompanion": "codecompanion",
    "codecompanion.nvim": "codecompanion",
    "codex": "codex",
    "codex-cli": "codex",
    "continue": "continue",
    "copilot": "copilot",
    "copilot-cli": "copilot",
    "cursor": "cursor",
    "emacs": "emacs",
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "goose": "goose",
    "gptel": "emacs",
    "jetbrains": "jetbrains",
    "junie": "junie",
    "kilo": "kilo",
    "kilocode": "kilo",
    "mcp-hub": "mcphub",
    "mcp.el": "emacs",
    "mcphub": "mcphub",
    "opencode": "opencode",
    "qwen": "qwen",
    "qwen-code": "qwen",
    "roo": "roo",
    "roo-code": "roo",
    "vs-code": "vscode",
    "vscode": "vscode",
    "vscode-insiders": "vscode-insiders",
    "windsurf": "windsurf",
    "zed": "zed",
    "zeditor": "zed",
}
"""Clients by the names of their programs and packages."""
