"""Whether a tool's definition says that it changes nothing.

A hint is its server's word, and a client that asks its user less for such a tool trusts it the same
way where the server is its own. capd adds no trust: it passes the word on. A definition that
changes is noticed as any other change is (docs/definitions.md).
"""

import msgspec


class _Annotations(msgspec.Struct):
    readOnlyHint: bool = False  # noqa: N815 - MCP's name


class _Tool(msgspec.Struct):
    annotations: _Annotations | None = None


_TOOL = msgspec.json.Decoder(_Tool)


def is_read_only(definition: bytes) -> bool:
    """Tell whether a tool is marked as one that changes nothing; what cannot be read is not."""
    try:
        annotations = _TOOL.decode(definition).annotations
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return annotations is not None and annotations.readOnlyHint
