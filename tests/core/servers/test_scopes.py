"""The default scope of servers whose definition sets none."""

import pytest

from capd.core.servers.scopes import default_scope, is_scope_fixed


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


@pytest.mark.parametrize(
    ("command", "args", "transport", "is_fixed"),
    [
        ("uvx", ["mcp-server-git==2025.1.14"], "stdio", False),
        ("npx", ["-y", "@modelcontextprotocol/server-postgres@0.6.2"], "stdio", False),
        ("uvx", ["--from", "git+https://example.org/a/b.git", "mcp"], "stdio", False),
        ("docker", ["run", "-i", "ghcr.io/org/server:1.2"], "stdio", False),
        ("server", ["--log=debug", "--root", "/srv/data.db"], "stdio", False),
        ("server", ["{{PROJECT}}/data.db"], "stdio", True),
        ("octocode", ["mcp", "--path=."], "stdio", True),
        ("server", ["--root", ".."], "stdio", True),
        ("./server", [], "stdio", True),
        ("node", ["build/index.js"], "stdio", True),
        ("python", ["server.py"], "stdio", True),
        ("uvx", ["mcp-server-sqlite", "--db-path=notes.db"], "stdio", True),
        ("npx", ["@playwright/mcp@0.0.41"], "stdio", True),
        ("", [], "http", False),
    ],
)
def test_servers_with_state_or_files_by_place_keep_their_scope_in_either_generation(
    command: str, args: list[str], transport: str, *, is_fixed: bool
) -> None:
    got = is_scope_fixed(command, args, transport)

    assert got is is_fixed
