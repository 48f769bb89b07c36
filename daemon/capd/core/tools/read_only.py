"""Tells whether a tool's definition says that it changes nothing.

The hint is the server's own claim. A client that asks its user less often about such a tool trusts
the claim just as it would without capd; capd only passes it on. A changed hint is noticed like any
other change of a definition (docs/definitions.md).
"""

import msgspec


class _Annotations(msgspec.Struct):
    readOnlyHint: bool = False  # noqa: N815 - MCP's name


class _Tool(msgspec.Struct):
    annotations: _Annotations | None = None


_TOOL = msgspec.json.Decoder(_Tool)


def is_read_only(definition: bytes) -> bool:
    """Tell whether a tool is marked as changing nothing; an unreadable definition is not."""
    try:
        annotations = _TOOL.decode(definition).annotations
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return annotations is not None and annotations.readOnlyHint
