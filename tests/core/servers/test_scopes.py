"""The scope of a server whose definition names none."""

import pytest

from capd.core.servers.scopes import default_scope


@pytest.mark.parametrize(
    ("command", "args", "transport", "scope"),
    [
        ("uvx", ["mcp-server-git==2025.1.14"], "stdio", "project"),
        ("npx", ["-y", "@modelcontextprotocol/server-postgres@0.6.2"], "stdio", "project"),
        ("octocode", ["mcp", "--path=."], "stdio", "project"),
        ("powershellish", [], "stdio", "project"),
        ("", [], "builtin", "project"),
        ("npx", ["@playwright/mcp@0.0.41"], "stdio", "session"),
        ("npx", ["-y", "Puppeteer-MCP-Server"], "stdio", "session"),
        ("npx", ["chrome-devtools-mcp@1.0.0"], "stdio", "session"),
        ("selenium-mcp", [], "stdio", "session"),
        ("uvx", ["browser-use"], "stdio", "session"),
        ("shell", [], "stdio", "session"),
        ("uvx", ["mcp-shell-server"], "stdio", "session"),
        ("uvx", ["python_repl"], "stdio", "session"),
        ("npx", ["@scope/ssh-mcp"], "stdio", "session"),
        ("uvx", ["mcp-terminal"], "stdio", "session"),
        ("", [], "http", "session"),
    ],
)
def test_servers_with_state_are_one_for_each_session_and_others_for_each_project(
    command: str, args: list[str], transport: str, scope: str
) -> None:
    got = default_scope(command, args, transport)

    assert got == scope
