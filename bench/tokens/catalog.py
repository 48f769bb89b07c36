"""The ten servers of the day: how each is started, and the triggers of its capability.

Where the starter tap has a capability for a server, the triggers are taken from there. The others
were written before the day was.
"""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

_STARTER = Path(__file__).parents[2] / "taps" / "starter" / "capabilities"
_WHEN = "1793611800 +0000"


@dataclass(frozen=True, slots=True)
class Server:
    """One server; `{{P}}` stands for the project's folder."""

    name: str
    argv: tuple[str, ...]
    starter: tuple[str, ...] = ()
    """Capabilities of the starter tap whose triggers this one has."""
    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def triggers(self) -> list[str]:
        found = list(self.words)
        for name in self.starter:
            text = (_STARTER / name / "config.toml").read_text(encoding="utf-8")
            found += tomllib.loads(text)["triggers"]
        return found


def _npx(package: str, *arguments: str) -> tuple[str, ...]:
    return ("npx", "-y", package, *arguments)


SERVERS = (
    Server(
        "git",
        ("uvx", "mcp-server-git==2026.10.19"),
        ("git", "git-write"),
        # The hash of a commit depends on its time, and the hash is part of the tokens.
        env={
            "GIT_AUTHOR_DATE": _WHEN,
            "GIT_COMMITTER_DATE": _WHEN,
            "GIT_AUTHOR_NAME": "Ada",
            "GIT_AUTHOR_EMAIL": "ada@example.org",
            "GIT_COMMITTER_NAME": "Ada",
            "GIT_COMMITTER_EMAIL": "ada@example.org",
        },
    ),
    Server(
        "files",
        _npx("@modelcontextprotocol/server-filesystem@2026.8.31", "{{P}}"),
        ("files", "files-edit"),
    ),
    Server(
        "memory",
        _npx("@modelcontextprotocol/server-memory@2026.8.31"),
        ("knowledge-graph",),
        env={"MEMORY_FILE_PATH": "{{P}}/.git/graph.jsonl"},
    ),
    Server("playwright", _npx("@playwright/mcp@0.0.83", "--headless"), ("web-browser",)),
    Server(
        "context7",
        _npx("@upstash/context7-mcp@4.1.1"),
        words=(
            "look up the current documentation of this library",
            "how is this function of the framework used in its latest version",
            "find code examples for this package",
            "use context7",
            "what does the API reference of next.js say about routing",
            "check the docs of fastapi for dependencies",
        ),
    ),
    Server(
        "fetch",
        (
            "uvx",
            "mcp-server-fetch==2026.10.24",
            "--allow-private-ips",
            "--ignore-robots-txt",
        ),
        ("web-page",),
    ),
    Server("time", ("uvx", "mcp-server-time==2026.10.19"), ("time",)),
    Server(
        "sqlite",
        (
            "uvx",
            "--with",
            "mcp<2",
            "mcp-server-sqlite==2025.4.25",
            "--db-path",
            "{{P}}/data/harbour.db",
        ),
        ("sqlite",),
    ),
    Server(
        "tree-sitter",
        ("uvx", "--with", "mcp<2", "mcp-server-tree-sitter==0.7.0"),
        words=(
            "show the syntax tree of this file",
            "where is this function used in the code base",
            "find all callers of this method",
            "which classes and functions does this module define",
            "what does this source file depend on",
            "analyse the structure of the project's code",
            "find code that is similar to this snippet",
            "how complex is this function",
        ),
    ),
    Server(
        "excel",
        ("uvx", "excel-mcp-server==2.2.2", "stdio"),
        words=(
            "create an Excel file from this table",
            "what is in this workbook",
            "read the second sheet of the spreadsheet",
            "write these numbers into the xlsx file",
            "add a chart to the sheet",
            "make a pivot table of the sales",
            "sort the rows of the worksheet",
            "format the header row in Excel",
        ),
    ),
)
