"""Keeps the roots of a client on another machine from the servers of this one.

Such a client is on the far side of a bridge, over which another host or a container uses capd.

A root is a path on the client's machine. A server on this machine would take it for a local folder,
and might open it. So capd tells servers that such a client has no roots, and drops an answer that
lists some.
"""

import msgspec

from capd.core.protocol.generations import (
    CLIENT_CAPABILITIES,
    Members,
    joined,
    members_of,
    members_or_none,
)

_ROOTS = "roots"


def capabilities_without_roots(capabilities: bytes) -> bytes:
    """Return a client's capabilities, a JSON object, without the member `roots`."""
    offered = members_or_none(capabilities)
    if _ROOTS not in offered:
        return capabilities
    return joined({name: value for name, value in offered.items() if name != _ROOTS})


def without_roots(members: Members) -> Members:
    """Return those members of a request's params that have to change, without roots in them.

    They are `_meta`, with the client's capabilities, and `inputResponses`, the client's answers to
    a server's questions.

    Raises:
        MalformedError: one of them is not an object.
    """
    changed: Members = {}
    if "_meta" in members:
        meta = members_of(members["_meta"])
        if CLIENT_CAPABILITIES in meta:
            offered = capabilities_without_roots(bytes(meta[CLIENT_CAPABILITIES]))
            meta[CLIENT_CAPABILITIES] = msgspec.Raw(offered)
            changed["_meta"] = msgspec.Raw(joined(meta))
    if "inputResponses" in members:
        answers = members_of(members["inputResponses"])
        kept = {
            key: value
            for key, value in answers.items()
            if _ROOTS not in members_or_none(bytes(value))
        }
        changed["inputResponses"] = msgspec.Raw(joined(kept))
    return changed
