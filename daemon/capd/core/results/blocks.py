"""Splits a `tools/call` result into its content blocks, without decoding what is in them.

A block of text can be added to a result in the same way, so that the rest keeps its bytes.
"""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from capd.core.protocol.generations import Members, joined, members_or_none, raw
from capd.core.results.json_cut import width
from capd.core.results.large_results import Result
from capd_protos.codec import JsonCodec, MalformedError

_BLOCKS: JsonCodec[list[Members]] = JsonCodec(list[Members])
_TEXT: JsonCodec[str] = JsonCodec(str)
_MEMBERS: JsonCodec[Members] = JsonCodec(Members)
_CONTENT = "content"


def _text_of(value: msgspec.Raw | None) -> str | None:
    try:
        return _TEXT.decode(value) if value is not None else None
    except MalformedError:
        return None


@dataclass(frozen=True, eq=False)
class Block:
    """One content block; its members are unparsed JSON."""

    members: Members

    @cached_property
    def kind(self) -> str:
        """The block's `type`, such as `text` or `image`; empty if it has none."""
        return _text_of(self.members.get("type")) or ""

    @cached_property
    def text(self) -> str | None:
        """The text of a text block, or of an embedded text resource; None for other blocks."""
        return _text_of(self.members.get("text") or self._resource.get("text"))

    @cached_property
    def media(self) -> str:
        """The name of the member with base64: `data`, `blob`, or empty if there is none."""
        if "data" in self.members and "text" not in self.members:
            return "data"
        return "blob" if "blob" in self._resource else ""

    @cached_property
    def media_characters(self) -> int:
        """The number of characters of the block's base64; 0 if it has none."""
        return len(self._holder[self.media]) - 2 if self.media else 0

    @cached_property
    def mime(self) -> str:
        """The MIME type of the block's media."""
        return _text_of(self._holder.get("mimeType")) or "application/octet-stream"

    @property
    def width(self) -> int:
        """The number of characters of the block's JSON, without its base64."""
        return width(joined(self.members)) - self.media_characters

    def base64(self) -> bytes:
        """Return the block's base64 as a JSON string, quotes included."""
        return bytes(self._holder[self.media])

    def with_text(self, text: str) -> bytes:
        """Return the block's JSON with another text."""
        if "text" in self.members:
            return joined({**self.members, "text": raw(text)})
        resource = {**self._resource, "text": raw(text)}
        return joined({**self.members, "resource": msgspec.Raw(joined(resource))})

    def as_link(self, uri: str, name: str) -> bytes:
        """Return a `resource_link` block to `uri`, to be used instead of the block's media."""
        kept = {k: v for k, v in self.members.items() if k in {"annotations", "_meta"}}
        link: Members = {
            "type": raw("resource_link"),
            "uri": raw(uri),
            "name": raw(name),
            "mimeType": raw(self.mime),
            "size": raw(self.media_characters * 3 // 4),
            **kept,
        }
        return joined(link)

    @cached_property
    def _resource(self) -> Members:
        return members_or_none(self.members.get("resource", b""))

    @property
    def _holder(self) -> Members:
        return self.members if self.media == "data" else self._resource


@dataclass(frozen=True, slots=True)
class ResultParts:
    """A `tools/call` result, split into its members and content blocks."""

    members: Members
    blocks: list[Block]
    structured: bytes
    """The JSON of the structured content; empty if there is none."""

    @property
    def text_characters(self) -> int:
        """How many characters of the content blocks a model reads."""
        return sum(block.width if block.text is None else len(block.text) for block in self.blocks)

    @property
    def media_characters(self) -> int:
        """The number of characters of base64 in all blocks."""
        return sum(block.media_characters for block in self.blocks)

    @property
    def characters(self) -> int:
        """The number of characters of the content or of the structured content: the larger one."""
        return max(self.text_characters, width(self.structured))

    @property
    def is_error(self) -> bool:
        """Whether the result has `isError: true`."""
        return bytes(self.members.get("isError", b"")) == b"true"


def parts_of(result: bytes) -> ResultParts:
    """Split a result, which is JSON.

    Raises:
        MalformedError: `result` is not an object, or its `content` is not a list of objects.
    """
    members = _MEMBERS.decode(result)
    blocks = _BLOCKS.decode(members.get("content", msgspec.Raw(b"[]")))
    structured = bytes(members.get("structuredContent", b"")).strip()
    return ResultParts(
        members, [Block(each) for each in blocks], b"" if structured == b"null" else structured
    )


def takes_text(result: Result) -> bool:
    """Tell whether a result has a list `content`, so that `with_text` can add to it."""
    if not isinstance(result, bytes):
        return False
    content = members_or_none(result).get(_CONTENT)
    return content is not None and bytes(content).startswith(b"[")


def with_text(result: bytes, text: str) -> bytes:
    """Return a result with a text block added at the end; `takes_text(result)` must be true."""
    members = members_or_none(result)
    blocks = bytes(members[_CONTENT]).rstrip().removesuffix(b"]").rstrip()
    comma = b"" if blocks == b"[" else b","
    block = msgspec.json.encode({"type": "text", "text": text})
    return joined({**members, _CONTENT: msgspec.Raw(blocks + comma + block + b"]")})
