"""Tells whether a tool's definition has `readOnlyHint`, which says that the tool changes nothing.

The hint is only the server's claim. A client that does not ask its user about such tools trusts the
claim, with or without capd. A changed hint is noticed like any other change of a definition
(docs/definitions.md).
"""

import msgspec


class _Annotations(msgspec.Struct):
    readOnlyHint: bool = False  # noqa: N815 - MCP's name


class _Tool(msgspec.Struct):
    annotations: _Annotations | None = None


_TOOL = msgspec.json.Decoder(_Tool)


def is_read_only(definition: bytes) -> bool:
    """Tell whether a definition has `readOnlyHint: true`; False if it is not readable."""
    try:
        annotations = _TOOL.decode(definition).annotations
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return annotations is not None and annotations.readOnlyHint
