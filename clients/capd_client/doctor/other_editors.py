"""Clients into which capd was put by hand: whether what they start is there."""

import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capd_client.doctor.findings import Finding
from capd_client.doctor.surroundings import Surroundings
from capd_client.install.jsonc import JsoncError, parse

_CONFIGURATIONS = (
    ("Codex", ".codex/config.toml", "mcp_servers"),
    ("Gemini CLI", ".gemini/settings.json", "mcpServers"),
    ("Qwen Code", ".qwen/settings.json", "mcpServers"),
    ("Copilot CLI", ".copilot/mcp-config.json", "mcpServers"),
    ("Cursor", ".cursor/mcp.json", "mcpServers"),
    ("Windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers"),
    ("Claude Desktop", ".config/Claude/claude_desktop_config.json", "mcpServers"),
    ("VS Code", ".config/Code/User/mcp.json", "servers"),
    ("Zed", ".config/zed/settings.json", "context_servers"),
    ("Kilo", ".config/kilo/kilo.jsonc", "mcp"),
)
"""Title, file below HOME, and the table of servers in it (45-clients)."""
_OURS = frozenset({"capd", "capd-mcp"})


def check_other_editors(seen: Surroundings) -> Iterator[Finding]:
    """Look for an entry of capd in each client that it can be put into by hand."""
    home = Path(seen.env.get("HOME") or Path.home())
    for title, file, table in _CONFIGURATIONS:
        path = home / file
        try:
            text = path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, UnicodeDecodeError):
            text = ""
        try:
            servers = (_parsed(path, text) or {}).get(table)
        except (JsoncError, ValueError, RecursionError):
            yield Finding(
                "editors",
                "note",
                f"{path} cannot be read: whether {title} has capd is not known",
            )
            continue
        for name, entry in servers.items() if isinstance(servers, dict) else ():
            command = _command(entry)
            if name in _OURS or Path(command).name in _OURS:
                yield _looked_at(seen, title, path, command)


def _parsed(path: Path, text: str) -> dict[str, Any]:
    found: Any = tomllib.loads(text) if path.suffix == ".toml" else parse(text).value
    return found if isinstance(found, dict) else {}


def _command(entry: Any) -> str:
    """Return the program of a server's entry, in whichever way it is written."""
    command = entry.get("command") if isinstance(entry, dict) else None
    if isinstance(command, dict):
        command = command.get("path")
    if isinstance(command, list):
        command = command[0] if command else None
    return command if isinstance(command, str) else ""


def _looked_at(seen: Surroundings, title: str, path: Path, command: str) -> Finding:
    search = seen.env.get("PATH", os.defpath)
    if not command:
        return Finding("editors", "note", f"{title} reaches capd its own way ({path})")
    if shutil.which(command, path=search) is None:
        return Finding(
            "editors",
            "error",
            f"{title} cannot start capd: {command} is not there, or cannot be run",
            f"{path} names it",
            "write the path of the capd that there is (`command -v capd`)",
        )
    return Finding("editors", "ok", f"{title} has capd")
