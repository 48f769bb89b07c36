"""capd's own answers to `initialize` and to `server/discover`.

All handshake versions have the same exchange. A client that asks for any other version gets the
newest handshake version, and decides whether to go on (MCP lifecycle, "Version Negotiation").
"""

from collections.abc import Mapping
from typing import Any

from capd.core.protocol.generations import HANDSHAKE_VERSIONS, NEWEST_HANDSHAKE, STATELESS_VERSIONS

_LIST_CHANGED = {"listChanged": True}

CAPABILITIES: dict[str, Any] = {
    "completions": {},
    "logging": {},
    "prompts": _LIST_CHANGED,
    "resources": {"subscribe": True, **_LIST_CHANGED},
    "tools": _LIST_CHANGED,
}
"""What capd announces to every client, whatever is on: servers come and go, and clients ignore a
`list_changed` of a kind that was not announced."""


def agreed_version(asked: object) -> str:
    """Return the requested version if it is a handshake version, else the newest such version."""
    # Return the string of the table: otherwise each session keeps its client's copy in memory.
    return next((known for known in HANDSHAKE_VERSIONS if known == asked), NEWEST_HANDSHAKE)


def initialize_result(
    asked: object, daemon_version: str, instructions: str, extensions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the result of `initialize`; `asked` is the version that the client requested."""
    return {
        "protocolVersion": agreed_version(asked),
        "capabilities": {**CAPABILITIES, "extensions": dict(extensions)},
        "serverInfo": server_info(daemon_version),
        **_instructions_member(instructions),
    }


def discover_result(
    daemon_version: str, instructions: str, extensions: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the result of `server/discover`."""
    return {
        "resultType": "complete",
        "supportedVersions": [*reversed(STATELESS_VERSIONS), *reversed(HANDSHAKE_VERSIONS)],
        "capabilities": {**CAPABILITIES, "extensions": dict(extensions)},
        **_instructions_member(instructions),
        # This describes capd itself, which does not change while it runs.
        "ttlMs": 60_000,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": server_info(daemon_version)},
    }


def _instructions_member(instructions: str) -> dict[str, str]:
    """Return the member `instructions`; no member if the text is empty."""
    return {"instructions": instructions} if instructions else {}


def server_info(daemon_version: str) -> dict[str, str]:
    """Return capd's own name and version."""
    return {"name": "capd", "title": "capd", "version": daemon_version}
