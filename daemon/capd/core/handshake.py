"""MCP's handshake era: which version is spoken, and what capd answers to `initialize`.

Versions 2024-11-05 to 2025-11-25 share one handshake. A client that asks for another version
gets the newest of these and decides for itself (MCP lifecycle, "Version Negotiation").
"""

from typing import Any

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
NEWEST = VERSIONS[-1]


def agreed_version(asked: object) -> str:
    """Return the version that the session speaks."""
    return asked if isinstance(asked, str) and asked in VERSIONS else NEWEST


def initialize_result(asked: object, daemon_version: str, instructions: str) -> dict[str, Any]:
    """Return the result of `initialize`.

    `listChanged` is always announced: clients ignore the notification otherwise (90, item 6).
    """
    return {
        "protocolVersion": agreed_version(asked),
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "capd", "title": "capd", "version": daemon_version},
        "instructions": instructions,
    }
