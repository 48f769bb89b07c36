"""The names of tools on the wire.

A wire name is `<server>__<tool>` in lower case, at most 64 characters of `[a-z0-9_]` of which the
first is no digit: every client and every model's provider accepts such names, so no client has to
change them, which could make two names equal (docs/design/clients.md). It depends on the definition
alone, so it is the same in every session; a name that had to be changed in more than its case and
its dashes, or that another tool has already, ends in a short hash.
"""

import hashlib
import re
from collections.abc import Container

from capd_protos.types import ServerIdentity, ServerName, ToolName, WireName

LIMIT = 64
_HASH_DIGITS = 6
_FORBIDDEN = re.compile(r"[^a-z0-9_]")


def wire_name(
    server: ServerName,
    identity: ServerIdentity,
    tool: ToolName,
    taken: Container[WireName] = (),
    limit: int = LIMIT,
) -> WireName:
    """Return the name under which clients see `tool`, different from all in `taken`.

    `limit` is for a client that accepts fewer characters than others.
    """
    # Codex turns dashes into underscores, which would merge names that differ only in them.
    wanted = f"{server}__{tool}".lower().replace("-", "_")
    if wanted[0].isdigit():
        # Gemini's models reject a name that begins with a digit.
        wanted = f"_{wanted}"
    allowed = WireName(_FORBIDDEN.sub("_", wanted))
    if allowed == wanted and len(allowed) <= limit and allowed not in taken:
        return allowed
    digest = hashlib.sha256(f"{identity}\0{server}\0{tool}".encode()).hexdigest()
    for digits in range(_HASH_DIGITS, len(digest) + 1):
        suffix = "_" + digest[:digits]
        name = WireName(allowed[: max(0, limit - len(suffix))] + suffix)
        if name not in taken:
            return name
    raise AssertionError("a whole SHA-256 is taken")


def original_name(
    name: WireName, server: ServerName, identity: ServerIdentity, tool: ToolName, *, is_new: bool
) -> WireName:
    """Return the wire name that rules match; `name` is the tool's own, or one from an edit."""
    return wire_name(server, identity, tool) if is_new else name


def bare_name(
    server: ServerName,
    identity: ServerIdentity,
    tool: ToolName,
    taken: Container[WireName] = (),
) -> WireName:
    """Return the tool's own name, whatever it is, or its wire name if its own is taken."""
    own = WireName(tool)
    return own if own not in taken else wire_name(server, identity, tool, taken)
