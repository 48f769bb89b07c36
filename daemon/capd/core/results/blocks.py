"""The parts of a `tools/call` result, split without decoding their contents."""

from dataclasses import dataclass
from functools import cached_property

import msgspec

from capd.core.protocol.generations import Members, joined, members_or_none, raw
from capd.core.results.json_cut import width
from capd_protos.codec import JsonCodec, MalformedError

_BLOCKS: JsonCodec[list[Members]] = JsonCodec(list[Members])
_TEXT: JsonCodec[str] = JsonCodec(str)
_MEMBERS: JsonCodec[Members] = JsonCodec(Members)


def _text_of(value: msgspec.Raw | None) -> str | None:
    try:
        return _TEXT.decode(value) if value is not None else None
    except MalformedError:
        return None


@dataclass(frozen=True, eq=False)
class Block:
    """One block of content; every member stays as it was written."""

    members: Members

    @cached_property
    def kind(self) -> str:
        """Its type."""
        return _text_of(self.members.get("type")) or ""

    @cached_property
    def text(self) -> str | None:
        """The text of a block of text, or of an embedded resource of text."""
        return _text_of(self.members.get("text") or self._resource.get("text"))

    @cached_property
    def media(self) -> str:
        """The name of the member with base64, empty if there is none."""
        if "data" in self.members and "text" not in self.members:
            return "data"
        return "blob" if "blob" in self._resource else ""

    @cached_property
    def media_characters(self) -> int:
        """The length of its base64."""
        return len(self._holder[self.media]) - 2 if self.media else 0

    @cached_property
    def mime(self) -> str:
        """The type of its image or audio (MIME)."""
        return _text_of(self._holder.get("mimeType")) or "application/octet-stream"

    @property
    def width(self) -> int:
        """The number of characters that a client reads of it, without media."""
        return width(joined(self.members)) - self.media_characters

    def base64(self) -> bytes:
        """Return its base64 data as JSON."""
        return bytes(self._holder[self.media])

    def with_text(self, text: str) -> bytes:
        """Return the block with another text."""
        if "text" in self.members:
            return joined({**self.members, "text": raw(text)})
        resource = {**self._resource, "text": raw(text)}
        return joined({**self.members, "resource": msgspec.Raw(joined(resource))})

    def as_link(self, uri: str, name: str) -> bytes:
        """Return a link that replaces its media."""
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
class Parts:
    """A result, split into its parts."""

    members: Members
    blocks: list[Block]
    structured: bytes
    """The structured content as it was written, empty if there is none."""

    @property
    def text_characters(self) -> int:
        """The number of characters that a model reads if it is shown the content."""
        return sum(block.width if block.text is None else len(block.text) for block in self.blocks)

    @property
    def media_characters(self) -> int:
        """The number of characters of base64."""
        return sum(block.media_characters for block in self.blocks)

    @property
    def characters(self) -> int:
        """The size for a model, which is shown either the content or the structured content."""
        return max(self.text_characters, width(self.structured))

    @property
    def is_error(self) -> bool:
        """Whether it reports an error."""
        return bytes(self.members.get("isError", b"")) == b"true"


def parts_of(result: bytes) -> Parts:
    """Split a result.

    Raises:
        MalformedError: it is not a result, or cannot be split.
    """
    members = _MEMBERS.decode(result)
    blocks = _BLOCKS.decode(members.get("content", msgspec.Raw(b"[]")))
    structured = bytes(members.get("structuredContent", b"")).strip()
    return Parts(
        members, [Block(each) for each in blocks], b"" if structured == b"null" else structured
    )
