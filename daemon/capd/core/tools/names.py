"""Wire names: the names under which clients see tools.

A wire name is `<server>__<tool>` in lower case, at most 64 characters of `[a-z0-9_]`, of which the
first is no digit. Every client and every provider accepts such names, so no client changes them. A
change could make two names equal (docs/design/clients.md). A name ends in a short hash in two
cases: if more had to be changed than upper case, dashes and a digit at the beginning, or if another
tool has the name already. Except in the second case, the name depends on the definition alone, and
is the same in every session.
"""

import hashlib
from collections.abc import Container

from capd.core.lazy_patterns import lazy_pattern
from capd_protos.types import ServerIdentity, ServerName, ToolName, WireName

LIMIT = 64
_HASH_DIGITS = 6
_FORBIDDEN = lazy_pattern(r"[^a-z0-9_]")


def wire_name(
    server: ServerName,
    identity: ServerIdentity,
    tool: ToolName,
    taken: Container[WireName] = (),
    limit: int = LIMIT,
) -> WireName:
    """Return the name of a tool for clients, `<server>__<tool>`, different from all in `taken`.

    `limit` is the most characters, lower than 64 for a client that accepts fewer.
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
    """Return the name for clients that a tool would have if no edit (docs/tools.md) had renamed it.

    Policy rules match this name. `is_new` says that `name` was made from a name that an edit gives
    the tool. If it is false, `name` itself is returned.
    """
    return wire_name(server, identity, tool) if is_new else name


def bare_name(
    server: ServerName,
    identity: ServerIdentity,
    tool: ToolName,
    taken: Container[WireName] = (),
) -> WireName:
    """Return the tool's own name unchanged; if that is in `taken`, `<server>__<tool>`."""
    own = WireName(tool)
    return own if own not in taken else wire_name(server, identity, tool, taken)
